"""``@tool``: a tool from a function's own signature."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, Unpack, cast, overload

import attrs

from micdrop_agent.tools._tool import Tool

if TYPE_CHECKING:
    from collections.abc import Callable

    from micdrop_agent.tools._tool import ToolOptions

P = ParamSpec("P")
R = TypeVar("R")


@attrs.frozen(kw_only=True, eq=False)
class FunctionTool(Tool, Generic[P, R]):
    """A tool made from a function, which can still be called like the function."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function itself, as if it had not become a tool."""
        return cast("R", cast("Callable[..., Any]", self.execute)(*args, **kwargs))


@overload
def tool(
    function: Callable[P, R],
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    **options: Unpack[ToolOptions],
) -> FunctionTool[P, R]: ...
@overload
def tool(
    *, name: str | None = None, description: str | None = None, **options: Unpack[ToolOptions]
) -> Callable[[Callable[P, R]], FunctionTool[P, R]]: ...
def tool(
    function: Callable[P, R] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    **options: Unpack[ToolOptions],
) -> FunctionTool[P, R] | Callable[[Callable[P, R]], FunctionTool[P, R]]:
    """Make a tool of a function: ``@tool``, ``@tool(name=…)`` or ``tool(function, …)``.

    The arguments are the function's parameters; their descriptions come from
    ``Annotated[T, "text"]`` or from the docstring's ``Args``. A parameter annotated ``Agent``, or
    called ``agent`` without annotation, gets the agent and is not shown to the model.

    Args:
        function: Sync or async; a bound method, a partial or a callable object will do.
        name: By default the function's name.
        description: By default the docstring up to its first section.
        **options: As for ``Tool``.

    Raises:
        TypeError: A parameter without a type or with one that JSON cannot give.
        ValueError: No name, a bad name, or an option out of range.
    """
    from micdrop_agent.tools._plan import plan_function

    if function is None:
        return lambda later: tool(later, name=name, description=description, **options)
    if isinstance(function, Tool):
        raise TypeError(f"{function.name} is a tool already")
    if isinstance(function, type) or not callable(function):
        raise TypeError(f"a tool is made of a function, not of {function!r}")
    return FunctionTool(
        name=_default_name(function) if name is None else name,
        description=description or "",
        execute=function,
        _plan=plan_function(function),
        **options,
    )


def _default_name(function: Any) -> str:
    inner = getattr(function, "func", function)  # a partial is named after its function
    name = getattr(inner, "__name__", None)
    if not isinstance(name, str) or name == "<lambda>":
        raise ValueError(f"{function!r} has no name of its own; give one: tool(…, name=…)")
    return name
