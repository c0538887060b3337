"""What a tool's function takes: the arguments for the model, and the agent if it wants it."""

from __future__ import annotations

import functools
import inspect
import re
import sys
from typing import TYPE_CHECKING, Any, Final

import attrs

from micdrop_agent.tools._callables import innermost, name_of
from micdrop_agent.tools._models import default_of, is_field_info
from micdrop_agent.tools._types import Field, strip, union_members

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from micdrop_agent.tools._types import Hints

_ROOT_PACKAGE: Final = __name__.partition(".")[0]
_AGENT_NAME: Final = re.compile(r"""["']?(?:Optional\[)?(?:\w+\.)*(\w+)\]?["']?(?:\s*\|\s*None)?["']?""")
_REFUSED_KINDS: Final[dict[Any, str]] = {
    inspect.Parameter.VAR_POSITIONAL: "takes *{}",
    inspect.Parameter.VAR_KEYWORD: "takes **{}",
    inspect.Parameter.POSITIONAL_ONLY: "takes {} by position only",
}


@attrs.frozen
class Signature:
    """The arguments that the model fills, and the parameter that gets the agent."""

    fields: tuple[Field, ...]
    context: str | None
    defaults: Mapping[str, Callable[[], Any]] = attrs.Factory(dict[str, Any])
    """Values of those whose default the function does not have itself (pydantic's ``Field(…)``)."""


def read_function(function: Callable[..., Any], hints: Hints) -> Signature:
    """The arguments of a function whose parameters are the tool's arguments.

    Raises:
        TypeError: A parameter that the model could not fill, or whose type is not known.
    """
    from micdrop_agent.tools import _docstring

    name = name_of(function)
    texts = _docstring.arguments(inspect.getdoc(innermost(function)))
    fields: list[Field] = []
    context: str | None = None
    defaults: dict[str, Callable[[], Any]] = {}
    for parameter in _parameters(function):
        refused = _REFUSED_KINDS.get(parameter.kind)
        if refused is not None:
            raise TypeError(
                f"{name} {refused.format(parameter.name)}: a tool needs a name and a type for every argument"
            )
        hint = _resolve(function, parameter, hints)
        if _is_agent(hint, parameter.name) or _is_unannotated_agent(parameter):
            context = _only_one(context, parameter.name, name)
            continue
        if parameter.annotation is inspect.Parameter.empty:
            raise TypeError(_missing_annotation(name, parameter))
        default, described = parameter.default, ""
        if is_field_info(default):
            described = default.description or ""
            factory = default_of(default)
            if factory is not None:
                defaults[parameter.name] = factory
            default = inspect.Parameter.empty if factory is None else factory()
        required = default is inspect.Parameter.empty
        field = Field(
            key=parameter.name,
            hint=hint,
            description=strip(hint)[1] or described or texts.get(parameter.name, ""),
            required=required,
        )
        fields.append(field if required else attrs.evolve(field, default=default))
    return Signature(tuple(fields), context, defaults)


def takes_value(function: Callable[..., Any], hints: Hints) -> tuple[str | None, str | None, bool]:
    """How a function that gets all arguments as one value is called.

    Returns:
        The parameter that gets the agent, the one that gets the value by name (a keyword-only
        one), and whether the value is passed at all.

    Raises:
        TypeError: It needs more than the value and the agent.
    """
    try:
        parameters = _parameters(function)
    except TypeError:  # some built-ins have no signature to read
        return None, None, True
    context: str | None = None
    others: list[inspect.Parameter] = []
    for parameter in parameters:
        unread = parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        if unread or parameter.kind is parameter.POSITIONAL_ONLY:
            others += [] if parameter.kind is parameter.VAR_KEYWORD else [parameter]
        elif _is_unannotated_agent(parameter) or _is_agent(_annotation(function, parameter, hints), parameter.name):
            context = _only_one(context, parameter.name, name_of(function))
        else:
            others.append(parameter)
    needed = [p for p in others if p.default is p.empty and p.kind is not p.VAR_POSITIONAL]
    if len(needed) > 1:
        extra = ", ".join(parameter.name for parameter in needed[1:])
        raise TypeError(f"{name_of(function)} gets its input as one value, and has no use for {extra}")
    takers = needed or others
    taker = takers[0] if takers else None
    keyword = taker.name if taker is not None and taker.kind is taker.KEYWORD_ONLY else None
    return context, keyword, taker is not None


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    try:
        found = list(inspect.signature(function).parameters.values())
    except ValueError as error:
        raise TypeError(f"{name_of(function)} has no signature that could be read; use Tool.from_schema") from error
    # What a partial has fixed by name is no choice of the model's any more.
    fixed: set[str] = set()
    if isinstance(function, functools.partial):
        fixed = set(function.keywords)
    return [parameter for parameter in found if parameter.name not in fixed]


def _annotation(function: Any, parameter: inspect.Parameter, hints: Hints) -> Any:
    module_globals: dict[str, Any] = getattr(innermost(function), "__globals__", {})
    try:
        return hints.resolve(parameter.annotation, module_globals)
    except (NameError, AttributeError):
        return parameter.annotation


def _resolve(function: Any, parameter: inspect.Parameter, hints: Hints) -> Any:
    hint = _annotation(function, parameter, hints)
    if isinstance(hint, str) and not _is_agent(hint, parameter.name):
        raise TypeError(
            f"{name_of(function)}: the type of {parameter.name}, {hint!r}, does not exist at run time; "
            "import it outside of TYPE_CHECKING"
        )
    return hint


def _is_unannotated_agent(parameter: inspect.Parameter) -> bool:
    return parameter.name == "agent" and parameter.annotation is inspect.Parameter.empty


def _is_agent(hint: Any, name: str) -> bool:
    """Whether the parameter ``name`` takes the agent: ``Agent``, or any class below it."""
    if isinstance(hint, str):
        # Imported for type checkers only, so its name is all there is.
        match = _AGENT_NAME.fullmatch(hint.strip())
        return match is not None and (name == "agent" or match[1].endswith("Agent") or match[1] in _agent_names())
    hint = strip(hint)[0]
    options = [each for each in union_members(hint) or (hint,) if each is not type(None)]
    if len(options) != 1 or not isinstance(options[0], type):
        return False
    return any(
        cls.__name__ == "Agent" and cls.__module__.partition(".")[0] == _ROOT_PACKAGE for cls in options[0].__mro__
    )


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


def _only_one(context: str | None, name: str, function: str) -> str:
    if context is not None:
        raise TypeError(f"{function}: {context} and {name} would both get the agent")
    return name


def _missing_annotation(function: str, parameter: inspect.Parameter) -> str:
    if parameter.name in {"self", "cls"}:
        return f"{function} is not bound yet; wrap the method of an instance: tool(instance.method)"
    return (
        f"{function}: the parameter {parameter.name} has no type; write for example {parameter.name}: str "
        "(or agent, without a type, for the agent itself)"
    )
