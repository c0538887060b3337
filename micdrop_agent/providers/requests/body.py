"""Puts a request body together: model, conversation, tools, settings; no I/O.

    {"model":…, "messages":[ history ], "tools":[ tools ], "stream":true, settings…}

``settings`` come last and win over what the agent sets, except for what it could not work without.
Source: Micdrop ``OpenaiAgent`` and ``MistralAgent``, option ``settings``.

Invariants, pinned in tests/test_provider_tool_choice.py:

1. Where the conversation holds calls, tools are declared: servers refuse calls without declarations.
2. A forced ``tool_choice`` is sent in the first request of an answer only: a tool never runs twice for it.
3. ``settings["tools"]`` stand beside the agent's own tools, and replace none but those of the same name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

import attrs

from micdrop_agent.providers.json_text import encode
from micdrop_agent.providers.requests.history import HistoryEncoder
from micdrop_agent.providers.requests.tool_forms import declare, is_forced, name_of_declared, relaxed, stub

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from micdrop_agent.model.protocol import Request
    from micdrop_agent.providers.requests.history import Dialect, EncodedHistory
    from micdrop_agent.providers.requests.tool_forms import ToolForm
    from micdrop_agent.tools import Tool

__all__ = ["BodyBuilder", "Tails"]

_NEED_TOOLS: Final = ("tool_choice", "parallel_tool_calls")
"""Settings that servers refuse in a request without tools, as the first one of a call is."""


@attrs.frozen(eq=False)
class Tails:
    """How a body ends, ready to be sent.

    Args:
        asked: With the choice of tools that the settings ask for.
        relaxed: The same where the choice has forced a call already.
        no_choice: Tools are declared, and none may be called.
        without_tools: No tools are declared.
    """

    asked: bytes
    relaxed: bytes
    no_choice: bytes
    without_tools: bytes


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
        mixed_strict: Whether strict tools may stand beside others.
        no_choice: Members that say that no tool is to be called; empty if the provider has no such member.
    """

    model: str
    dialect: Dialect
    history: Literal["messages", "input"]
    tools: ToolForm
    settings: Mapping[str, Any] = attrs.field(factory=dict[str, Any])
    defaults: Mapping[str, Any] = attrs.field(factory=dict[str, Any])
    mixed_strict: bool = True
    no_choice: Mapping[str, Any] = attrs.field(default={"tool_choice": "none"})
    _encoder: HistoryEncoder = attrs.field(init=False)
    _head: bytes = attrs.field(init=False)
    _others: list[dict[str, Any]] = attrs.field(init=False)
    """Declarations of the user's own."""
    _tails: Tails = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._encoder = HistoryEncoder(self.dialect)
        model = encode({"model": self.settings.get("model", self.model)})[1:-1]
        self._head = b'{%b,"%b":[' % (model, self.history.encode())
        self._others = self.settings.get("tools", [])
        self._tails = self._make_tails(self.settings)

    def _make_tails(self, settings: Mapping[str, Any]) -> Tails:
        last = {"stream": True, **self.defaults, **settings}
        last = {name: value for name, value in last.items() if name not in {"model", "tools"}}
        bare = {name: value for name, value in last.items() if name not in _NEED_TOOLS}
        choice = last.get("tool_choice")
        asked = encode(last)[1:]
        return Tails(
            asked=asked,
            relaxed=encode({**last, "tool_choice": relaxed(choice)})[1:] if is_forced(choice) else asked,
            no_choice=encode({**bare, **self.no_choice})[1:],
            without_tools=asked if self._others or bare == last else encode(bare)[1:],
        )

    def build(self, request: Request) -> bytes:
        """The body for ``request``, in UTF-8."""
        history = self._encoder.encode(request.items, request.continue_from)
        tails = self._tails_for(history)
        # The first message of a call is a greeting: nothing was asked yet that a tool could answer.
        offered = request.tools if history.spoken else ()
        others = [encode(other) for other in self._others] if self._others else []
        tools: list[bytes] = []
        tail = tails.without_tools
        if offered:
            tools = self._declared(offered)
            tail = tails.asked if request.first else tails.relaxed
        elif history.called and (request.declared or not others):
            tools = self._declared(request.declared) or [stub(name, self.tools) for name in sorted(history.called)]
            tail = tails.no_choice
        tools += others
        declared = b'"tools":[%b],' % b",".join(tools) if tools else b""
        return b"".join((self._head, *history.pieces, self._after_history(history), declared, tail))

    def _tails_for(self, history: EncodedHistory) -> Tails:
        """What ends the body after ``history``."""
        del history
        return self._tails

    def _after_history(self, history: EncodedHistory) -> bytes:
        """The end of the list of messages, and the members that follow from it."""
        del history
        return b"],"

    def _declared(self, tools: Sequence[Tool]) -> list[bytes]:
        if self._others:
            taken = {name_of_declared(other) for other in self._others}
            tools = [tool for tool in tools if tool.name not in taken]
        return declare(tools, self.tools, self._others, mixed=self.mixed_strict)
