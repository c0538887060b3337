"""One turn of a call as a test sees it: what was asked, what came of it, and what a test expects of that.

    record = await talk(agent, "I want a table for two")
    record.said("Friday").called("book", day="friday").within(first_chunk=1.0)

Each expectation returns the record, so that they can be chained. One that fails raises ``ExpectationError``, whose
message tells the course of the answer.
"""

from __future__ import annotations

import json
import math
import re
from typing import TYPE_CHECKING, Any, Final, cast

import anyio
import attrs

from micdrop_agent.events import AgentSwitched, MessageAdded, MessageCorrected
from micdrop_agent.messages import ToolCall, ToolResult
from micdrop_agent.providers.json_text import as_dict
from micdrop_agent.testing._course import course_of, quoted, shortened
from micdrop_agent.tracing.page import time_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Self

    from micdrop_agent._core.agent import Agent
    from micdrop_agent._core.answer import Answer
    from micdrop_agent.messages import Item
    from micdrop_agent.result import AnswerResult

__all__ = ["ExpectationError", "Talk", "ToolUse", "talk"]

_ANYTHING: Final = object()


class ExpectationError(AssertionError):
    """An expectation of a test was not met; the message tells the course of the answer."""


@attrs.frozen
class ToolUse:
    """One tool that an answer called.

    Args:
        name: Name of the tool.
        arguments: Its arguments, decoded; the text as it came if that is not JSON.
        output: What it returned, decoded; ``None`` as long as it has not.
        call_id: Id of the call.
    """

    name: str
    arguments: Any
    output: Any = None
    call_id: str = ""

    @property
    def error(self) -> str | None:
        """What went wrong, as the model was told; ``None`` if nothing did."""
        told = as_dict(self.output).get("error")
        return None if told is None else str(told)


@attrs.frozen
class Talk:
    """What was asked and what came of it; made by ``talk``.

    Expected texts are compared without regard to case and white space, as no voice tells those apart; a compiled
    regular expression says exactly what it means. Expected values are compared with ``==``; a compiled regular
    expression is searched for in the value, a function is called with it.

    Args:
        prompt: What the caller said.
        result: The end of the answer: status, error, usage, times.
        chunks: What the consumer received, and when, in seconds since ``answer()`` was called.
        items: What the answer added to the conversation, in order.
        switches: The switches of a ``FallbackAgent`` to another child.
    """

    prompt: str
    result: AnswerResult
    chunks: Sequence[tuple[float, str]] = ()
    items: Sequence[Item] = ()
    switches: Sequence[AgentSwitched] = ()
    _seen: Sequence[int] = attrs.field(default=(), repr=False, eq=False)
    """How many events the trace had when each chunk was written; times alone do not tell the order."""

    @property
    def text(self) -> str:
        """All that the consumer received."""
        return "".join(chunk for _, chunk in self.chunks)

    @property
    def calls(self) -> list[ToolUse]:
        """The tools that were called, in order, with what they returned."""
        outputs = {item.tool_call_id: item.output for item in self.items if isinstance(item, ToolResult)}
        return [
            ToolUse(
                call.tool_name, _decoded(call.parameters), _decoded(outputs.get(call.tool_call_id)), call.tool_call_id
            )
            for call in self.items
            if isinstance(call, ToolCall)
        ]

    @property
    def course(self) -> str:
        """What happened while the answer was made, one line for each thing, with times."""
        outputs = {item.tool_call_id: item.output for item in self.items if isinstance(item, ToolResult)}
        told = {
            call.tool_call_id: (call.parameters, outputs.get(call.tool_call_id))
            for call in self.items
            if isinstance(call, ToolCall)
        }
        seen = self._seen or [0] * len(self.chunks)
        spoken = [(number, at, chunk) for number, (at, chunk) in zip(seen, self.chunks, strict=True)]
        return f"the answer to {quoted(self.prompt)}:\n{course_of(self.result.trace, spoken, told)}"

    def __str__(self) -> str:
        return self.course

    # -- expectations

    def said(self, *texts: str | re.Pattern[str]) -> Self:
        """Expect that the answer said each of ``texts``.

        Raises:
            ExpectationError: It did not.
        """
        __tracebackhide__ = True
        for text in texts:
            if not _found(text, self.text):
                self._fail(f"it should have said {_shown(text)}, and said {quoted(self.text)}")
        return self

    def never_said(self, *texts: str | re.Pattern[str]) -> Self:
        """Expect that the answer said none of ``texts``; without any, that it said nothing at all.

        Raises:
            ExpectationError: It did.
        """
        __tracebackhide__ = True
        if not texts and self.text.strip():
            self._fail(f"it should have said nothing, and said {quoted(self.text)}")
        for text in texts:
            if _found(text, self.text):
                self._fail(f"it should not have said {_shown(text)}, and said {quoted(self.text)}")
        return self

    def called(self, tool: str, /, **arguments: Any) -> Self:
        """Expect a call of ``tool`` with these arguments; it may have had others too.

        Raises:
            ExpectationError: There was none.
        """
        __tracebackhide__ = True
        for use in self.calls:
            given = as_dict(use.arguments)
            if use.name == tool and all(_is_in(given, name, wanted) for name, wanted in arguments.items()):
                return self
        wanted = f"{tool}({', '.join(f'{name}={_shown(value)}' for name, value in arguments.items())})"
        self._fail(f"it should have called {wanted}, and called {self._told_calls()}")
        return self

    def called_nothing(self) -> Self:
        """Expect that no tool was called.

        Raises:
            ExpectationError: One was.
        """
        __tracebackhide__ = True
        if self.calls:
            self._fail(f"it should have called no tool, and called {self._told_calls()}")
        return self

    def extracted(self, value: Any = _ANYTHING, /, **members_: Any) -> Self:
        """Expect an extracted value: this one, or one with these members; without arguments, any.

        Raises:
            ExpectationError: There was none, or another one.
        """
        __tracebackhide__ = True
        found = self.result.extracted
        if found is None and value is not None:
            self._fail("it should have extracted a value, and extracted none")
        if value is not _ANYTHING and not _matches(value, found):
            self._fail(f"it should have extracted {_shown(value)}, and extracted {found!r}")
        known = _attributes(found, members_)
        for name, wanted in members_.items():
            if not _is_in(known, name, wanted):
                self._fail(f"it should have extracted {name}={_shown(wanted)}, and extracted {found!r}")
        return self

    def within(self, *, first_chunk: float | None = None, total: float | None = None) -> Self:
        """Expect the first chunk, or the end, at most so many seconds after the question.

        Raises:
            ExpectationError: It came later, or never.
        """
        __tracebackhide__ = True
        first = self.result.time_to_first_chunk
        if first_chunk is not None and first is None:
            self._fail(f"its first chunk should have come within {time_of(first_chunk)}, and it said nothing")
        if first_chunk is not None and first is not None and first > first_chunk:
            self._fail(
                f"its first chunk should have come within {time_of(first_chunk)}, and came after {time_of(first)}"
            )
        if total is not None and self.result.duration > total:
            self._fail(f"it should have taken at most {time_of(total)}, and took {time_of(self.result.duration)}")
        return self

    def switched_to(self, name: str, /) -> Self:
        """Expect that a ``FallbackAgent`` switched to its child ``name``.

        Raises:
            ExpectationError: It did not.
        """
        __tracebackhide__ = True
        if all(switch.to != name for switch in self.switches):
            told = ", then to ".join(switch.to for switch in self.switches)
            self._fail(f"it should have switched to {name}, and {f'switched to {told}' if told else 'did not switch'}")
        return self

    def cost(self, *, tokens: int | None = None, requests: int | None = None) -> Self:
        """Expect that it took at most so many tokens (of prompt and answer together), or requests.

        Raises:
            ExpectationError: It took more, or its server did not report tokens.
        """
        __tracebackhide__ = True
        usage = self.result.usage
        if tokens is not None:
            if usage is None or (usage.input_tokens is None and usage.output_tokens is None):
                self._fail(f"it should have cost at most {tokens} tokens, and its server reported none")
            else:
                spent = (usage.input_tokens or 0) + (usage.output_tokens or 0)
                if spent > tokens:
                    self._fail(f"it should have cost at most {tokens} tokens, and cost {spent}")
        if requests is not None and self.result.requests > requests:
            self._fail(f"it should have sent at most {requests} requests, and sent {self.result.requests}")
        return self

    def ended(self, status: str, /) -> Self:
        """Expect that it ended so: ``"completed"``, ``"skipped"``, ``"cancelled"`` or ``"failed"``.

        Raises:
            ExpectationError: It ended otherwise.
        """
        __tracebackhide__ = True
        if self.result.status != status:
            self._fail(f"it should have ended as {status}, and ended as {self.result.status}")
        return self

    def _told_calls(self) -> str:
        told = [f"{use.name}({shortened(json.dumps(use.arguments, ensure_ascii=False))})" for use in self.calls]
        return ", ".join(told) or "nothing"

    def _fail(self, what: str) -> None:
        __tracebackhide__ = True
        raise ExpectationError(f"{what}\n{self.course}")


async def talk(agent: Agent, text: str, *, interrupt_after: float | str | None = None) -> Talk:
    """Say ``text`` to ``agent``, read its answer to the end, and return what came of it.

    An answer that fails is a record too, whatever ``raise_on_failure`` says: its ``result`` has the error.

    Args:
        agent: It is open.
        text: What the caller says.
        interrupt_after: Barge in so many seconds after the question, or once this much of the answer was heard.
    """
    items: list[Item] = []
    switches: list[AgentSwitched] = []
    chunks: list[tuple[float, str]] = []
    agent.add_user_message(text)
    stop_items = agent.on(MessageAdded, lambda event: items.append(event.message))
    stop_corrections = agent.on(MessageCorrected, lambda event: _correct(items, event))
    stop_switches = agent.on(AgentSwitched, switches.append)
    try:
        began = anyio.current_time()
        answer = agent.answer()
        seen = _note_writes(answer)
        try:
            with anyio.move_on_after(interrupt_after if isinstance(interrupt_after, int | float) else math.inf):
                async for chunk in answer:
                    chunks.append((anyio.current_time() - began, chunk))
                    if isinstance(interrupt_after, str) and _found(interrupt_after, "".join(one for _, one in chunks)):
                        break
            if interrupt_after is not None:
                agent.cancel()
        except Exception as error:  # that of the answer is in its result; all else is raised again
            if not answer.ended or answer.result.error is not error:
                raise
        result = await answer.wait()
        places = [seen[min(number, len(seen) - 1)] for number in range(len(chunks))]
        return Talk(text, result, tuple(chunks), tuple(items), tuple(switches), places)
    finally:
        stop_items()
        stop_corrections()
        stop_switches()


def _note_writes(answer: Answer) -> list[int]:
    """How many events the trace has at each chunk that is written; filled while the answer is made.

    When a chunk is received depends on how an event loop takes turns; when it is written does not.
    """
    seen: list[int] = []
    push = answer.push

    def noted(chunk: str) -> None:
        seen.append(len(answer.turn.facts.trace))
        push(chunk)

    patched: Any = answer
    patched.push = noted
    return seen


def _correct(items: list[Item], event: MessageCorrected) -> None:
    """Less of a message was heard than was stored."""
    corrected = [event.new if item is event.old else item for item in items]
    items[:] = [item for item in corrected if item is not None]


# -- comparing


def _decoded(text: str | None) -> Any:
    if text is None:
        return None
    try:
        return json.loads(text)
    except ValueError:
        return text


def _found(wanted: str | re.Pattern[str], text: str) -> bool:
    if isinstance(wanted, re.Pattern):
        return wanted.search(text) is not None
    return _plain(wanted) in _plain(text)


def _plain(text: str) -> str:
    return " ".join(text.split()).casefold()


def _is_in(found: dict[str, Any], name: str, wanted: Any) -> bool:
    return name in found and _matches(wanted, found[name])


def _matches(wanted: Any, found: Any) -> bool:
    if isinstance(wanted, re.Pattern):
        pattern = cast("re.Pattern[str]", wanted)
        return pattern.search(found if isinstance(found, str) else json.dumps(found, ensure_ascii=False)) is not None
    if callable(wanted) and not isinstance(wanted, type):
        return bool(wanted(found))
    return bool(wanted == found)


def _attributes(found: Any, names: dict[str, Any]) -> dict[str, Any]:
    """The members of an extracted value, which may be an object of the user's own class."""
    if isinstance(found, dict):
        return as_dict(cast("Any", found))
    return {name: getattr(found, name) for name in names if hasattr(found, name)}


def _shown(value: Any) -> str:
    if isinstance(value, re.Pattern):
        return f"/{cast('re.Pattern[str]', value).pattern}/"
    return getattr(value, "__name__", None) or repr(value)
