"""Puts a request body together: model, conversation, tools, settings; no I/O.

    {"model":…, "messages":[ history ], "tools":[ tools ], "stream":true, settings…}

``settings`` come last and win over what the agent sets, except for what it could not work without.
Source: Micdrop ``OpenaiAgent`` and ``MistralAgent``, option ``settings``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Literal

import attrs

from micdrop_agent.options import check_text
from micdrop_agent.providers.json_text import encode
from micdrop_agent.providers.requests.history import HistoryEncoder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from micdrop_agent.model.protocol import Request
    from micdrop_agent.providers.requests.history import Dialect
    from micdrop_agent.tools import Tool

__all__ = ["BodyBuilder", "ToolForm", "check_settings"]

ToolForm = Literal["responses", "chat", "mistral"]

_OWNED: Final = ("stream", "input", "messages")
"""Members that the agent makes itself: with others in their place no answer could be read."""

_NEED_TOOLS: Final = ("tool_choice", "parallel_tool_calls")
"""Settings that servers refuse in a request without tools, as the first one of a call is."""


def check_settings(settings: Mapping[str, Any] | None) -> dict[str, Any]:
    """The user's ``settings``, copied.

    Raises:
        TypeError: They are no mapping of names, or hold something that JSON cannot.
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
            raise TypeError(f"settings[{name!r}] is nothing that JSON can hold: {error}") from None
    return copy


@attrs.define(eq=False)
class BodyBuilder:
    """Makes the bodies of one agent's requests.

    Args:
        model: The model's name.
        dialect: How the provider wants a conversation.
        history: The member that holds it, ``"messages"`` or ``"input"``.
        tools: How the provider wants tools declared.
        settings: Members merged last.
        defaults: Members that the agent sets unless ``settings`` do.
    """

    model: str
    dialect: Dialect
    history: Literal["messages", "input"]
    tools: ToolForm
    settings: Mapping[str, Any] = attrs.field(factory=dict[str, Any])
    defaults: Mapping[str, Any] = attrs.field(factory=dict[str, Any])
    _encoder: HistoryEncoder = attrs.field(init=False)
    _head: bytes = attrs.field(init=False)
    _tail: bytes = attrs.field(init=False)
    _tail_without_tools: bytes = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._encoder = HistoryEncoder(self.dialect)
        settings = dict(self.settings)
        model = encode({"model": settings.pop("model", self.model)})[1:-1]
        self._head = b'{%b,"%b":[' % (model, self.history.encode())
        last = {"stream": True, **self.defaults, **settings}
        self._tail = encode(last)[1:]
        self._tail_without_tools = self._tail
        if "tools" not in settings and any(name in last for name in _NEED_TOOLS):
            bare = {name: value for name, value in last.items() if name not in _NEED_TOOLS}
            self._tail_without_tools = encode(bare)[1:]

    def build(self, request: Request) -> bytes:
        """The body for ``request``, in UTF-8."""
        history, spoken = self._encoder.encode(request.items, request.continue_from)
        # The first message of a call is a greeting: nothing was asked yet that a tool could answer.
        tools = request.tools if spoken and "tools" not in self.settings else ()
        if not tools:
            return b"".join((self._head, *history, b"],", self._tail_without_tools))
        return b"".join((self._head, *history, b'],"tools":[', self._encoded(tools), b"],", self._tail))

    def _encoded(self, tools: Sequence[Tool]) -> bytes:
        form = self.tools
        parts: list[bytes] = []
        for tool in tools:
            part: bytes | None = tool.encoded.get(form)
            if part is None:
                part = tool.encoded[form] = encode(_declaration(tool, form))
            parts.append(part)
        return b",".join(parts)


def _declaration(tool: Tool, form: ToolForm) -> dict[str, Any]:
    if form == "responses":
        return {"type": "function", **tool.declaration}
    if form == "chat":
        return {"type": "function", "function": dict(tool.declaration)}
    # Mistral gets the schema as its author meant it, optional properties and all.
    function = {"name": tool.name, "description": tool.description, "parameters": tool.loose_parameters}
    return {"type": "function", "function": function}
