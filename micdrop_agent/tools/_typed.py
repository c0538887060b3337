"""Values of a type from decoded JSON, by the machinery that reads arguments: for typed extraction."""

from __future__ import annotations

from typing import Any

from micdrop_agent.errors import ToolInputError
from micdrop_agent.tools._check import check
from micdrop_agent.tools._plan import plan_class

__all__ = ["TypedValue"]


class TypedValue:
    """Reads and describes values of one class.

    Args:
        cls: An attrs class, a dataclass, a TypedDict or a pydantic model.

    Raises:
        TypeError: It is none of them, or a field cannot be read.
    """

    def __init__(self, cls: type) -> None:
        self.cls = cls
        self._plan = plan_class(cls, None)

    @property
    def schema(self) -> dict[str, Any]:
        """JSON Schema of the values."""
        return self._plan.schema

    def read(self, value: object) -> Any:
        """``value``, decoded JSON, as an instance of the class.

        Raises:
            ToolInputError: It does not fit; the text says everything that is wrong, without the values.
        """
        given, filled, problems = check(self._plan.schema, value)
        made: Any = None
        if not problems:
            made, problems = self._plan.value_of(given, filled)
        if problems:
            raise ToolInputError(f"no {self.cls.__name__}: {'; '.join(problems)}")
        return made
