"""The ways in which providers want a conversation; each one is a case that a real server refused.

* ``ResponsesDialect``: a flat list; within one response of the model texts, then calls, then outputs.
* ``ChatDialect``: calls of one response, and its text, in one assistant message; then the results.
* ``MistralDialect``: nine-character ids, an assistant between a result and what follows, a last message
  from the user or a tool.
* ``TemplateDialect``: what the chat templates of open models take: one system message, in front, and
  strict turns of user and assistant.

Fillers exist in the request only, never in the conversation. Tests: tests/test_provider_requests.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from micdrop_agent.messages import Message
from micdrop_agent.providers.attachments import Echo
from micdrop_agent.providers.json_text import encode_text
from micdrop_agent.providers.requests.history import CONTINUE_NOTE, Dialect, encode_call, message
from micdrop_agent.providers.requests.pairing import CallGroup
from micdrop_agent.providers.requests.wire_ids import nine_alphanumerics, up_to_40

if TYPE_CHECKING:
    from micdrop_agent.providers.requests.history import State
    from micdrop_agent.providers.requests.pairing import Entry

__all__ = ["ChatDialect", "MistralDialect", "ResponsesDialect", "TemplateDialect", "TypedDialect"]

OPENING: Final = "(The call has just begun. Speak first.)"
"""Stands for the caller, who has said nothing yet: most servers want a message from the user."""

GO_ON: Final = "(Please go on.)"
"""Stands for the caller where the request would end with the assistant's words."""

ACKNOWLEDGED: Final = "Okay."
"""Stands for the answer that a caller's interruption prevented, between a result and the caller."""

_CALL: Final = b'{"id":%b,"type":"function","function":{"name":%b,"arguments":%b}'
_ITEM: Final = b'{"type":"function_call","call_id":%b,"name":%b,"arguments":%b}'


class ResponsesDialect(Dialect):
    """The ``input`` of the Responses API."""

    def calls(self, state: State, group: CallGroup) -> None:
        """Texts first, calls next, outputs last: DeepSeek refuses words between calls."""
        self.flush(state)
        self.texts(state, list(group.texts))
        outputs: list[bytes] = []
        for each in group.calls:
            call_id = state.ids.next(each.call.tool_call_id)
            state.put("assistant", encode_call(each, _ITEM, call_id))
            outputs.append(
                b'{"type":"function_call_output","call_id":%b,"output":%b}'
                % (encode_text(call_id), encode_text(each.output))
            )
        for output in outputs:
            state.put("tool", output)

    def finish(self, state: State, continue_from: str | None) -> None:
        """A request has an item."""
        super().finish(state, continue_from)
        if not state.last:
            state.put("user", self.message("user", OPENING))


class TypedDialect(ResponsesDialect):
    """The same with the type of what the model said, which OpenAI lets one leave out and llama.cpp does not."""

    def message(self, role: str, content: str) -> bytes:
        """A message that says that it is one."""
        plain = super().message(role, content)
        return b'{"type":"message",' + plain[1:] if role == "assistant" else plain


class ChatDialect(Dialect):
    """The ``messages`` of Chat Completions, as OpenAI takes them.

    Args:
        echo: What the server wants back with its calls.
    """

    id_form = staticmethod(up_to_40)

    def __init__(self, echo: Echo | None = None) -> None:
        self._echo = Echo() if echo is None else echo

    def grouped(self, entries: list[Entry]) -> list[Entry]:
        """Calls whose server wants them together, as it made them: each is stored with its result behind it."""
        out: list[Entry] = []
        for entry in entries:
            last = out[-1] if out else None
            if (
                isinstance(last, CallGroup)
                and isinstance(entry, CallGroup)
                and self._echo.together(last.calls[-1].call, entry.calls[0].call)
            ):
                out[-1] = CallGroup((*last.calls, *entry.calls), (*last.texts, *entry.texts))
            else:
                out.append(entry)
        return out

    def calls(self, state: State, group: CallGroup) -> None:
        """One assistant message with the words before and between the calls, then the results."""
        words = [each.content for each in (*self._own_words(state), *group.texts)]
        self.flush(state)
        self._before(state, "assistant")
        calls: list[bytes] = []
        results: list[bytes] = []
        for each in group.calls:
            call_id = state.ids.next(each.call.tool_call_id)
            calls.append(encode_call(each, _CALL, call_id) + self._echo.of_call(each.call) + b"}")
            results.append(
                b'{"role":"tool","tool_call_id":%b,"content":%b}' % (encode_text(call_id), encode_text(each.output))
            )
        # An empty string beside calls is refused by some servers, a missing member by others.
        content = encode_text("\n".join(words)) if words else b"null"
        state.put(
            "assistant",
            b'{"role":"assistant","content":%b,"tool_calls":[%b]%b}'
            % (content, b",".join(calls), self._echo.of_message(each.call for each in group.calls)),
        )
        for result in results:
            state.put("tool", result)

    def _own_words(self, state: State) -> list[Message]:
        """What the model said right before its calls; taken out of what waits."""
        if state.waiting and state.waiting[0].role == "assistant":
            words, state.waiting = state.waiting, []
            return words
        return []

    def _before(self, state: State, role: str) -> None:
        """Whatever has to stand before a message of ``role``."""

    def finish(self, state: State, continue_from: str | None) -> None:
        """A request has a message from somebody; a server that goes on is asked by the user."""
        self.flush(state)
        if continue_from:
            self._before(state, "assistant")
            state.put("assistant", message("assistant", continue_from))
            state.put("user", message("user", f"({CONTINUE_NOTE})"))
        elif not state.spoken:
            state.put("user", message("user", OPENING))


class MistralDialect(ChatDialect):
    """The ``messages`` of Mistral's API."""

    id_form = staticmethod(nine_alphanumerics)

    def texts(self, state: State, messages: list[Message]) -> None:
        """As they are; nothing but an assistant or another result may follow a result."""
        self._before(state, messages[0].role)
        super().texts(state, messages)

    def calls(self, state: State, group: CallGroup) -> None:
        """Words and calls in messages of their own, words first."""
        self.flush(state)
        if group.texts:
            self.texts(state, list(group.texts))
        super().calls(state, type(group)(group.calls))

    def _own_words(self, state: State) -> list[Message]:
        del state
        return []

    def _before(self, state: State, role: str) -> None:
        if state.last == "tool" and role != "assistant":
            state.put("assistant", message("assistant", ACKNOWLEDGED))

    def finish(self, state: State, continue_from: str | None) -> None:
        """The last message is the user's or a tool's, or a beginning of the answer (``prefix``)."""
        if continue_from:
            self.flush(state)
            state.put("assistant", b'{"role":"assistant","content":%b,"prefix":true}' % encode_text(continue_from))
            return
        super().finish(state, None)
        if state.last not in {"user", "tool"}:
            self._before(state, "user")
            state.put("user", message("user", GO_ON))


class TemplateDialect(ChatDialect):
    """The ``messages`` that chat templates of open models accept."""

    def add(self, state: State, entry: Entry) -> None:
        """System notes go to the front; what stood around one may be neighbours then."""
        if isinstance(entry, Message) and entry.role == "system":
            state.notes.append(entry.content)
        else:
            super().add(state, entry)

    def texts(self, state: State, messages: list[Message]) -> None:
        """Neighbours of one role become one message."""
        role = messages[0].role
        self._before(state, role)
        state.put(role, message(role, "\n".join(each.content for each in messages)))

    def finish(self, state: State, continue_from: str | None) -> None:
        """Templates take a last message of the assistant as the beginning of the answer."""
        if continue_from:
            # What the assistant said before stands in one message with what it was cut in.
            continue_from = "\n".join([each.content for each in self._own_words(state)] + [continue_from])
        super().finish(state, continue_from)
        if state.last == "assistant":
            state.put("user", message("user", GO_ON))

    def start(self, state: State) -> bytes:
        """All system notes, in order, in one message."""
        return message("system", "\n\n".join(state.notes)) if state.notes else b""

    def _before(self, state: State, role: str) -> None:
        if role == "user" and state.last == "tool":
            state.put("assistant", message("assistant", ACKNOWLEDGED))
        elif role == "assistant" and not state.last:
            state.put("user", message("user", OPENING))
