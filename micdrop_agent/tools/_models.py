"""Pydantic's models and fields, known by what they offer: nothing of it is imported here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from micdrop_agent._strict_json import is_dict, is_list

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["default_of", "is_field_info", "is_model", "model_problems", "model_schema"]


def is_model(hint: Any) -> bool:
    """Whether ``hint`` is a class that writes its own JSON Schema and reads its own values."""
    return isinstance(hint, type) and all(
        callable(getattr(hint, name, None)) for name in ("model_json_schema", "model_validate")
    )


def model_schema(model: Any) -> dict[str, Any]:
    """The JSON Schema of ``model``, without the titles that repeat its names."""
    schema: dict[str, Any] = _without_titles(model.model_json_schema())
    return schema


def model_problems(error: Exception) -> list[tuple[str, str]]:
    """The place and the text of each mistake that ``error`` holds; none if it is not of that kind."""
    errors: Any = getattr(error, "errors", None)
    if not callable(errors):
        return []
    listed: object = errors()
    if not is_list(listed):
        return []
    return [
        (".".join(map(str, each.get("loc", ()))), str(each["msg"]))
        for each in listed
        if is_dict(each) and "msg" in each
    ]


def is_field_info(value: object) -> bool:
    """Whether ``value`` is what ``Field(…)`` returns."""
    return type(value).__name__ == "FieldInfo" and callable(getattr(value, "is_required", None))


def default_of(field: Any) -> Callable[[], Any] | None:
    """Makes the default of a ``Field(…)``; ``None`` if it has none."""
    if field.is_required():
        return None
    return lambda: field.get_default(call_default_factory=True)


def _without_titles(schema: Any) -> Any:
    if is_list(schema):
        return [_without_titles(each) for each in schema]
    if not is_dict(schema):
        return schema
    result: dict[str, Any] = {}
    for key, value in schema.items():
        if key == "properties" and is_dict(value):
            # A property may be called title itself.
            result[key] = {name: _without_titles(each) for name, each in value.items()}
        elif key in {"default", "examples", "enum", "const"}:
            result[key] = value
        elif key != "title":
            result[key] = _without_titles(value)
    return result
