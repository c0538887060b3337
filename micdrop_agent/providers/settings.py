"""``settings=``: members that the user puts into every request, checked where the agent is made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from micdrop_agent.options import check_text
from micdrop_agent.providers.json_text import encode, is_dict, is_list

__all__ = ["check_settings"]

_OWNED: Final = ("stream", "input", "messages", "contents", "system", "systemInstruction")
"""Members that the agent makes itself: with others in their place no answer could be read."""


def check_settings(settings: Mapping[str, Any] | None) -> dict[str, Any]:
    """The user's ``settings``, copied.

    Raises:
        TypeError: They are not a mapping of names, or hold something that JSON cannot.
        ValueError: They name a member that the agent owns; the message says which.
    """
    if settings is None:
        return {}
    if not isinstance(settings, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance] - users are untyped
        raise TypeError(f"settings must be a mapping of names to values, not {settings!r}")
    copy = dict(settings)
    for name, value in copy.items():
        check_text("a name in settings", name, empty=False)
        if name in _OWNED:
            raise ValueError(f"settings must not hold {name!r}: the agent makes it itself")
        try:
            encode(value)
        except (TypeError, ValueError, RecursionError) as error:
            raise TypeError(f"settings[{name!r}] cannot be held by JSON: {error}") from None
    tools = copy.get("tools", [])
    if not is_list(tools) or not all(is_dict(tool) for tool in tools):
        raise TypeError(f"settings['tools'] must be a list of declarations, not {tools!r}")
    return copy
