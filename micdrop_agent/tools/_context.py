"""What a tool's function may ask for besides its arguments: the agent, the turn, the application's own object.

    @tool
    async def book(day: str, db: Deps[Database], turn: Turn, agent: Agent) -> str: ...

None of them is shown to the model.
"""

from __future__ import annotations

import enum
import re
import sys
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeAlias, TypeVar, get_args, get_origin

from micdrop_agent.tools._types import strip, union_members

if TYPE_CHECKING:
    import inspect

__all__ = ["ContextKind", "Deps", "context_kind", "own_class"]

ContextKind: TypeAlias = Literal["agent", "turn", "deps"]

T = TypeVar("T")

_ROOT_PACKAGE: Final = __name__.partition(".")[0]
_CLASS_NAME: Final = re.compile(r"""["']?(?:Optional\[)?(?:\w+\.)*(\w+)\]?["']?(?:\s*\|\s*None)?["']?""")
_DEPS: Final = re.compile(r"""["']?(?:\w+\.)*Deps\[.*\]["']?""", re.DOTALL)


class _OfApplication:
    """Marks the parameter that gets ``deps``."""


OF_APPLICATION: Final = _OfApplication()

Deps: TypeAlias = Annotated[T, OF_APPLICATION]
"""The type of a tool's parameter that gets what the agent was given as ``deps``: ``db: Deps[Database]``."""


def own_class(hint: Any) -> type | None:
    """The class that ``hint`` names, optional or not, if it is of the application or one of its libraries."""
    hint = strip(hint)[0]
    options = [each for each in union_members(hint) or (hint,) if each is not type(None)]
    cls: Any = options[0] if len(options) == 1 else None
    if not isinstance(cls, type) or issubclass(cls, enum.Enum):
        return None
    if cls.__module__.partition(".")[0] in sys.stdlib_module_names:
        return None
    return cls  # pyright: ignore[reportUnknownVariableType] # any class at all, which has no better name


def context_kind(hint: Any, parameter: inspect.Parameter) -> ContextKind | None:
    """What the parameter is given that the model does not see; ``None`` for an argument.

    Args:
        hint: Its annotation, resolved as far as it can be.
        parameter: The parameter itself.
    """
    if parameter.name == "agent" and parameter.annotation is parameter.empty:
        return "agent"
    if isinstance(hint, str):
        # Imported for type checkers only, so its name is all there is.
        return _by_name(hint.strip(), parameter.name)
    if _is_deps(hint):
        return "deps"
    hint = strip(hint)[0]
    options = [each for each in union_members(hint) or (hint,) if each is not type(None)]
    if len(options) != 1 or not isinstance(options[0], type):
        return None
    for cls in options[0].__mro__:
        if cls.__module__.partition(".")[0] == _ROOT_PACKAGE and cls.__name__ in {"Agent", "Turn"}:
            return "agent" if cls.__name__ == "Agent" else "turn"
    return None


def _is_deps(hint: Any) -> bool:
    while get_origin(hint) is Annotated:
        hint, *extras = get_args(hint)
        if OF_APPLICATION in extras:
            return True
    members = union_members(hint)
    return members is not None and any(_is_deps(member) for member in members)


def _by_name(hint: str, parameter: str) -> ContextKind | None:
    if _DEPS.fullmatch(hint):
        return "deps"
    match = _CLASS_NAME.fullmatch(hint)
    if match is None:
        return None
    if match[1] == "Turn":
        return "turn"
    named = parameter == "agent" or match[1].endswith("Agent") or match[1] in _agent_names()
    return "agent" if named else None


def _agent_names() -> set[str]:
    """Names of all classes below ``Agent`` that exist by now."""
    core = sys.modules.get(f"{_ROOT_PACKAGE}._core.agent")  # not imported from here: it stands on this package
    left: list[type[Any]] = [] if core is None else [core.Agent]
    names: set[str] = set()
    while left:
        cls = left.pop()
        names.add(cls.__name__)
        left += cls.__subclasses__()
    return names
