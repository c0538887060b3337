"""What a tool's function takes: the arguments for the model, and the agent if it wants it."""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any, Final

import attrs

from micdrop_agent.tools._callables import innermost, name_of
from micdrop_agent.tools._context import context_kind, own_class
from micdrop_agent.tools._models import default_of, is_field_info
from micdrop_agent.tools._schema import SchemaBuilder
from micdrop_agent.tools._types import Field, strip

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from micdrop_agent.tools._context import ContextKind
    from micdrop_agent.tools._types import Hints

_REFUSED_KINDS: Final[dict[Any, str]] = {
    inspect.Parameter.VAR_POSITIONAL: "takes *{}",
    inspect.Parameter.VAR_KEYWORD: "takes **{}",
    inspect.Parameter.POSITIONAL_ONLY: "takes {} by position only",
}


@attrs.frozen
class Signature:
    """The arguments that the model fills, and the parameter that gets the agent."""

    fields: tuple[Field, ...]
    contexts: Mapping[ContextKind, str]
    """Parameters that the model does not see, by what they get."""
    defaults: Mapping[str, Callable[[], Any]] = attrs.Factory(dict[str, Any])
    """Values of those whose default the function does not have itself (pydantic's ``Field(…)``)."""
    wanted: type | None = None
    """The class of the parameter that gets ``deps``, where it is written without ``Deps[…]``."""


def read_function(function: Callable[..., Any], hints: Hints) -> Signature:
    """The arguments of a function whose parameters are the tool's arguments.

    Raises:
        TypeError: A parameter that the model could not fill, or whose type is not known.
    """
    from micdrop_agent.tools import _docstring

    name = name_of(function)
    texts = _docstring.arguments(inspect.getdoc(innermost(function)))
    fields: list[Field] = []
    contexts: dict[ContextKind, str] = {}
    defaults: dict[str, Callable[[], Any]] = {}
    wanted: type | None = None
    for parameter in _parameters(function):
        refused = _REFUSED_KINDS.get(parameter.kind)
        if refused is not None:
            raise TypeError(
                f"{name} {refused.format(parameter.name)}: a tool needs a name and a type for every argument"
            )
        hint = _resolve(function, parameter, hints)
        kind = context_kind(hint, parameter)
        if kind is None and _only_code_makes(hint, hints):
            kind, wanted = "deps", own_class(hint)
        if kind is not None:
            _only_one(contexts, kind, parameter.name, name)
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
    return Signature(tuple(fields), contexts, defaults, wanted)


def _only_code_makes(hint: Any, hints: Hints) -> bool:
    """Whether ``hint`` is a class of the application that no JSON becomes: the type of its ``deps``."""
    if own_class(hint) is None:
        return False
    try:
        SchemaBuilder(hints).build(hint, "")
    except TypeError:
        return True
    return False


def with_deps(signature: Signature, kind: type) -> Signature | None:
    """``signature`` with the argument of a type of ``kind`` taken from the application; ``None`` if it has none."""
    if "deps" in signature.contexts:
        return None
    for field in signature.fields:
        cls = own_class(field.hint)
        if cls is not None and cls in kind.__mro__:
            rest = tuple(other for other in signature.fields if other is not field)
            contexts: dict[ContextKind, str] = {**signature.contexts, "deps": field.key}
            return attrs.evolve(signature, fields=rest, contexts=contexts, wanted=cls)
    return None


def takes_value(function: Callable[..., Any], hints: Hints) -> tuple[Mapping[ContextKind, str], str | None, bool]:
    """How a function that gets all arguments as one value is called.

    Returns:
        The parameters that get the agent, the turn and the deps, the one that gets the value by name (a keyword-only
        one), and whether the value is passed at all.

    Raises:
        TypeError: It needs more than the value and what is not of the model.
    """
    try:
        parameters = _parameters(function)
    except TypeError:  # some built-ins have no signature to read
        return {}, None, True
    contexts: dict[ContextKind, str] = {}
    others: list[inspect.Parameter] = []
    for parameter in parameters:
        unread = parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        if unread or parameter.kind is parameter.POSITIONAL_ONLY:
            others += [] if parameter.kind is parameter.VAR_KEYWORD else [parameter]
        elif kind := context_kind(_annotation(function, parameter, hints), parameter):
            _only_one(contexts, kind, parameter.name, name_of(function))
        else:
            others.append(parameter)
    needed = [p for p in others if p.default is p.empty and p.kind is not p.VAR_POSITIONAL]
    if len(needed) > 1:
        extra = ", ".join(parameter.name for parameter in needed[1:])
        raise TypeError(f"{name_of(function)} gets its input as one value, and has no use for {extra}")
    takers = needed or others
    taker = takers[0] if takers else None
    keyword = taker.name if taker is not None and taker.kind is taker.KEYWORD_ONLY else None
    return contexts, keyword, taker is not None


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    try:
        found = list(inspect.signature(function).parameters.values())
    except ValueError as error:
        raise TypeError(f"{name_of(function)} has no signature that could be read; use Tool.from_schema") from error
    # The model does not choose what a partial has fixed by name.
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
    if isinstance(hint, str) and context_kind(hint, parameter) is None:
        raise TypeError(
            f"{name_of(function)}: the type of {parameter.name}, {hint!r}, does not exist at run time; "
            "import it outside of TYPE_CHECKING"
        )
    return hint


def _only_one(contexts: dict[ContextKind, str], kind: ContextKind, name: str, function: str) -> None:
    if kind in contexts:
        raise TypeError(f"{function}: {contexts[kind]} and {name} would both get the {kind}")
    contexts[kind] = name


def _missing_annotation(function: str, parameter: inspect.Parameter) -> str:
    if parameter.name in {"self", "cls"}:
        return f"{function} is not bound yet; wrap the method of an instance: tool(instance.method)"
    return (
        f"{function}: the parameter {parameter.name} has no type; write for example {parameter.name}: str "
        "(or agent, without a type, for the agent itself)"
    )
