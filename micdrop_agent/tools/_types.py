"""The types that arguments are made of: annotations resolved, classes read into fields.

Annotations may be text (``from __future__ import annotations``) and may name things that only the
enclosing function knows, so a ``Hints`` carries the local names of whoever defined the tool.
"""

from __future__ import annotations

import dataclasses
import enum
import inspect
import sys
import types
import typing
from typing import Annotated, Any, Final, Literal, Union, cast, get_args, get_origin

import attrs

from micdrop_agent.tools import _docstring

if typing.TYPE_CHECKING:
    from collections.abc import Callable, Mapping


class Missing(enum.Enum):
    """The type of ``MISSING``: there is no default, or none that could be written down."""

    MISSING = "MISSING"


MISSING: Final = Missing.MISSING

_PACKAGE: Final = __name__.rpartition(".")[0]
_UNION_ORIGINS: Final = (Union, types.UnionType)
_WRAPPERS: Final = tuple(
    getattr(typing, name) for name in ("Required", "NotRequired", "ReadOnly") if hasattr(typing, name)
)


@attrs.frozen(kw_only=True)
class Field:
    """One argument, or one field of a class: what the model may send under ``key``."""

    key: str
    hint: Any
    description: str = ""
    required: bool = True
    default: Any = MISSING


def strip(hint: Any) -> tuple[Any, str]:
    """``hint`` without ``Annotated``, aliases and new types; and the text that described it."""
    description = ""
    while True:
        origin = get_origin(hint)
        if origin is Annotated:
            inner, *extras = get_args(hint)
            description = description or _first_text(extras)
            hint = inner
        elif origin in _WRAPPERS:
            (hint,) = get_args(hint)
        elif hasattr(hint, "__supertype__"):  # NewType
            hint = hint.__supertype__
        elif hasattr(hint, "__value__") and hasattr(hint, "__type_params__"):  # type X = ...
            hint = hint.__value__
        else:
            return hint, description


def _first_text(extras: list[Any]) -> str:
    for extra in extras:
        # A string, typing's Doc, or pydantic's Field.
        found = (extra, getattr(extra, "documentation", None), getattr(extra, "description", None))
        text = next((each for each in found if isinstance(each, str)), None)
        if text is not None:
            return text.strip()
    return ""


def union_members(hint: Any) -> tuple[Any, ...] | None:
    """The members of a union, or None for anything else."""
    return get_args(hint) if get_origin(hint) in _UNION_ORIGINS else None


def literal_values(hint: Any) -> tuple[Any, ...] | None:
    """The values of a ``Literal``, or None for anything else."""
    return get_args(hint) if get_origin(hint) is Literal else None


def is_enum(hint: Any) -> bool:
    """Whether ``hint`` is an enum with one meaning per value (flags can be combined)."""
    return isinstance(hint, type) and issubclass(hint, enum.Enum) and not issubclass(hint, enum.Flag)


def enum_texts(hint: type[enum.Enum]) -> dict[Any, enum.Enum]:
    """What the model writes for each member: its value where that is JSON, else its name."""
    members = list(hint)
    if all(isinstance(member.value, str | int) for member in members):
        return {member.value: member for member in members}
    return {member.name: member for member in members}


def is_class(hint: Any) -> bool:
    """Whether ``hint`` is a class that is read field by field."""
    if not isinstance(hint, type):
        return False
    cls: type[Any] = hint
    return attrs.has(cls) or dataclasses.is_dataclass(cls) or typing.is_typeddict(cls)


def caller_names(module_globals: Mapping[str, Any]) -> dict[str, Any]:
    """Local names of the functions that are running in a module, the innermost first.

    A class defined inside a function is known to nobody else, and an annotation that is text
    names it all the same.
    """
    names: dict[str, Any] = {}
    frame = inspect.currentframe()
    while frame is not None:
        if frame.f_globals is module_globals and frame.f_locals is not module_globals:
            names = {**frame.f_locals, **names}
        frame = frame.f_back
    return names


class Hints:
    """Resolves annotations and reads classes, each class once."""

    def __init__(self, names: Mapping[str, Any]) -> None:
        self._names = dict(names)
        self._fields: dict[type, tuple[Field, ...]] = {}

    @classmethod
    def of(cls, definition: Any) -> Hints:
        """For the annotations of a function or class, from wherever it was defined."""
        module_globals = getattr(definition, "__globals__", None)
        if module_globals is None:
            module = sys.modules.get(getattr(definition, "__module__", None) or "")
            module_globals = vars(module) if module is not None else {}
        return cls(caller_names(module_globals))

    def forget_names(self) -> None:
        """Drop the local names, once all that a tool needs has been resolved.

        A tool would else keep whatever its defining function had at hand, for as long as it lives.
        """
        self._names.clear()

    def resolve(self, annotation: Any, module_globals: dict[str, Any]) -> Any:
        """``annotation`` with every text in it evaluated.

        Raises:
            NameError: It names something that does not exist at run time.
        """

        def probe() -> None: ...

        probe.__annotations__ = {"hint": annotation}
        hints = typing.get_type_hints(probe, module_globals, self._names, include_extras=True)
        return hints["hint"]

    def fields(self, cls: type) -> tuple[Field, ...]:
        """The fields of an attrs class, dataclass or TypedDict, as the model may fill them.

        Raises:
            TypeError: An annotation is missing, or names something that does not exist.
        """
        if cls not in self._fields:
            self._fields[cls] = tuple(self._read(cls))
        return self._fields[cls]

    def _read(self, cls: Any) -> list[Field]:
        try:
            hints = typing.get_type_hints(cls, localns=self._names, include_extras=True)
        except NameError as error:
            raise TypeError(
                f"{cls.__name__}: an annotation names {error.name!r}, which does not exist at run "
                "time; import it outside of TYPE_CHECKING"
            ) from error
        texts = _docstring.arguments(cls.__doc__)
        if attrs.has(cls):
            raw = _attrs_fields(cls)
        elif dataclasses.is_dataclass(cls):
            raw = _dataclass_fields(cls)
        else:
            raw = _typed_dict_fields(cls, hints)
        return [self._field(cls, item, hints, texts) for item in raw]

    def _field(self, cls: Any, item: _Raw, hints: dict[str, Any], texts: dict[str, str]) -> Field:
        hint = hints.get(item.name, item.type)
        if hint is None:
            raise TypeError(f"{cls.__name__}.{item.name} has no type; write {item.name}: <type>")
        text = strip(hint)[1] or item.description or texts.get(item.key) or texts.get(item.name)
        return Field(
            key=item.key,
            hint=hint,
            description=text or "",
            required=item.required,
            default=item.default,
        )


@attrs.frozen
class _Raw:
    name: str
    key: str
    type: Any
    required: bool
    default: Any = MISSING
    description: str = ""


_EMPTY_FACTORIES: Final[tuple[Callable[[], Any], ...]] = (list, dict, set, tuple, frozenset)


def _factory_default(factory: Any) -> Any:
    # Any other factory may read a clock or a counter: its value is nobody's business here.
    return factory() if any(factory is each for each in _EMPTY_FACTORIES) else MISSING


def _attrs_fields(cls: type) -> list[_Raw]:
    found: list[_Raw] = []
    for field in attrs.fields(cast("type[attrs.AttrsInstance]", cls)):
        if not field.init:
            continue
        default: Any = field.default
        required = default is attrs.NOTHING
        if required:
            default = MISSING
        elif hasattr(default, "factory") and hasattr(default, "takes_self"):
            default = MISSING if default.takes_self else _factory_default(default.factory)
        found.append(_Raw(field.name, field.alias, field.type, required, default, _described(field.metadata)))
    return found


def _dataclass_fields(cls: Any) -> list[_Raw]:
    found: list[_Raw] = []
    for field in dataclasses.fields(cls):
        if not field.init:
            continue
        default: Any = field.default
        if field.default_factory is not dataclasses.MISSING:
            default, required = _factory_default(field.default_factory), False
        else:
            required = default is dataclasses.MISSING
            default = MISSING if required else default
        found.append(_Raw(field.name, field.name, field.type, required, default, _described(field.metadata)))
    return found


def _typed_dict_fields(cls: type, hints: dict[str, Any]) -> list[_Raw]:
    required_keys: frozenset[str] = getattr(cls, "__required_keys__", frozenset())
    found: list[_Raw] = []
    for name, hint in hints.items():
        required = name in required_keys
        # The class cannot see these while its annotations are still text (cpython #97727).
        inner = hint
        while get_origin(inner) in (Annotated, *_WRAPPERS):
            if get_origin(inner) is typing.NotRequired:
                required = False
            elif get_origin(inner) is typing.Required:
                required = True
            inner = get_args(inner)[0]
        found.append(_Raw(name, name, hint, required))
    return found


def _described(metadata: Mapping[Any, Any]) -> str:
    text = metadata.get("description")
    return text if isinstance(text, str) else ""
