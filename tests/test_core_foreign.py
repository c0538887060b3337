"""Hooks, listeners, callbacks and tools that raise, and what a hook may return."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from micdrop_agent import (
    Agent,
    AllAgentsFailedError,
    ExtractTag,
    FallbackAgent,
    MicdropError,
    render_trace,
)
from micdrop_agent._core.log import SafeLog
from micdrop_agent.events import AnswerFailed, AnswerFinished, Event, MessageAdded
from micdrop_agent.testing import BACKENDS, HANG, Call, ScriptedAgent, run_virtual
from micdrop_agent.tools import Tool

if TYPE_CHECKING:
    from micdrop_agent import Turn
    from micdrop_agent.testing import Act, Backend

backends = pytest.mark.parametrize("backend", BACKENDS)


def said(agent: Agent) -> list[tuple[str, str]]:
    return [(item.role, getattr(item, "content", "") or getattr(item, "output", "")) for item in agent.conversation[1:]]


# -- foreign code that raises


@pytest.mark.parametrize("is_async", [False, True])
@backends
def test_a_hook_that_raises_fails_the_answer_and_says_so(backend: Backend, *, is_async: bool) -> None:
    async def main() -> None:
        def hook(_agent: Agent, _turn: Turn) -> None:
            raise KeyError("broken")

        async def async_hook(agent: Agent, turn: Turn) -> None:
            hook(agent, turn)

        async with ScriptedAgent(["a"], on_before_answer=async_hook if is_async else hook) as agent:
            failed: list[AnswerFailed] = []
            agent.on(AnswerFailed, failed.append)
            with pytest.raises(MicdropError, match="on_before_answer raised KeyError: 'broken'") as caught:
                await agent.answer().receive()
            assert isinstance(caught.value.__cause__, KeyError)
            assert [event.error for event in failed] == [caught.value]
            assert agent.asked == 0

    run_virtual(backend, main)


@backends
def test_everything_that_raises_at_once_loses_nothing(backend: Backend, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        def raises(*_args: Any) -> Any:
            raise ValueError("foreign")

        def raises_now() -> None:
            raises()

        extract = ExtractTag(start_tag="<v>", end_tag="</v>", callback=raises, save_in_metadata=True)
        script: list[Act] = ["Hm.", Call("raises"), "Well.", "<v>1</v>"]
        async with ScriptedAgent(script, tools=[Tool(name="raises", execute=raises_now)], extract=extract) as agent:
            events: list[Event] = []
            agent.on(MessageAdded, raises)
            agent.on(AnswerFinished, raises)
            agent.on(MessageAdded, events.append)
            assert [chunk async for chunk in agent.answer()] == ["Hm.", "Well."]
            assert said(agent) == [
                ("assistant", "Hm."),
                ("tool_call", ""),
                ("tool_result", '{"error":"the tool failed"}'),
                ("assistant", "Well."),
            ]
            assert len(events) == 4

    with caplog.at_level(logging.INFO):
        run_virtual(backend, main)
    assert "a listener of MessageAdded raised; it is ignored" in caplog.text
    assert "tool raises raised" in caplog.text
    assert "the extract callback raised; the answer goes on" in caplog.text


@pytest.mark.parametrize("verdict", [True, "Instead.", "", None, False])
@backends
def test_what_a_hook_may_return(backend: Backend, verdict: Any) -> None:
    async def main() -> None:
        async def hook(_agent: Agent, turn: Turn) -> Any:
            await turn.write("Hm, ")
            return verdict

        async with ScriptedAgent(["a"], on_before_answer=hook) as agent:
            answer = agent.answer()
            chunks = [chunk async for chunk in answer]
            rest = {True: [], "Instead.": ["Instead."], "": []}.get(verdict, ["a"])
            assert chunks == ["Hm, ", *rest]
            # The filler is spoken and no part of the conversation.
            assert said(agent) == [("assistant", text) for text in rest]
            assert agent.asked == (1 if verdict in (None, False) else 0)

    run_virtual(backend, main)


# -- errors that have no text


class WordlessError(Exception):
    """As exception classes that return a detail of their own: ``str()`` of it fails."""

    def __str__(self) -> str:
        return self.args[0]  # type: ignore[no-any-return]


WORDLESS = WordlessError({"detail": 1})


@backends
def test_an_error_without_a_text_fails_its_answer_and_nothing_else(
    backend: Backend, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with ScriptedAgent(["a", WORDLESS], ["b"]) as agent:
            answer = agent.answer()
            with pytest.raises(WordlessError):
                await anext(chunk async for chunk in answer if chunk == "b")
            assert answer.result.status == "failed"
            assert [chunk async for chunk in agent.answer()] == ["b"]

    run_virtual(backend, main)
    assert "the answer failed: WordlessError" in caplog.text


@backends
def test_an_error_without_a_text_in_a_hook_a_tool_or_a_child(backend: Backend) -> None:
    def fails() -> None:
        raise WORDLESS

    def hook(_agent: Agent, _turn: Turn) -> None:
        raise WORDLESS

    async def main() -> None:
        made = Tool.from_schema("fails", "", {"type": "object", "properties": {}}, lambda _arguments: fails())
        async with ScriptedAgent([Call("fails"), "a"], tools=[made]) as agent:
            assert [chunk async for chunk in agent.answer()] == ["a"]
            assert said(agent)[1] == ("tool_result", '{"error":"the tool failed"}')
        async with ScriptedAgent(["a"], on_before_answer=hook) as agent:
            with pytest.raises(MicdropError, match="WordlessError: WordlessError"):
                await agent.answer().receive()
        async with FallbackAgent([lambda: ScriptedAgent([WORDLESS])] * 2) as supervisor:
            with pytest.raises(AllAgentsFailedError, match="WordlessError"):
                await supervisor.answer().receive()
            assert "WordlessError" in render_trace([await supervisor.answer().wait()])

    run_virtual(backend, main)


# -- a log that cannot be written


class FullDisk(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        raise OSError("no space left on device")


@backends
@pytest.mark.parametrize(
    ("script", "status"), [(["a"], "completed"), (["a", ValueError("x")], "failed"), (["a", HANG], "cancelled")]
)
def test_a_log_that_cannot_be_written_changes_nothing(
    backend: Backend, script: list[Any], status: str, capsys: pytest.CaptureFixture[str]
) -> None:
    logger = logging.getLogger("test.full_disk")
    logger.propagate = False
    logger.setLevel(logging.DEBUG)
    logger.addHandler(FullDisk())

    async def main() -> None:
        made = Tool.from_schema("fails", "", {"type": "object", "properties": {}}, lambda arguments: arguments["x"])
        async with ScriptedAgent([Call("fails"), *script], tools=[made], raise_on_failure=False) as agent:
            agent.logger = logger
            assert agent.logger is logger
            events: list[Event] = []
            agent.on(MessageAdded, lambda _event: 1 / 0)
            agent.on(MessageAdded, events.append)
            agent.on(AnswerFinished, events.append)
            answer = agent.answer()
            assert await answer.receive() == "a"
            await anyio.sleep(1)
            agent.cancel()
            assert answer.status == status
            assert [item[0] for item in said(agent)] == ["tool_call", "tool_result", "assistant"]
            assert len(events) == 4

    run_virtual(backend, main)
    assert "no space left on device" in capsys.readouterr().err


@backends
def test_a_log_that_cannot_be_written_keeps_no_child_from_answering(backend: Backend) -> None:
    logger = logging.getLogger("test.full_disk")

    async def main() -> None:
        async with FallbackAgent([lambda: ScriptedAgent([WORDLESS]), lambda: ScriptedAgent(["b"])]) as agent:
            agent.logger = logger
            assert [chunk async for chunk in agent.answer()] == ["b"]

    run_virtual(backend, main)


def test_the_line_of_a_log_record_is_the_one_that_logged(caplog: pytest.LogCaptureFixture) -> None:
    log = SafeLog(logging.getLogger("test.where"))
    log.warning("here", extra={"call_id": "1"})
    (record,) = caplog.records
    assert (record.funcName, record.call_id) == ("test_the_line_of_a_log_record_is_the_one_that_logged", "1")  # type: ignore[attr-defined]


@pytest.mark.parametrize("wanted", [True, False])
def test_a_record_that_cannot_be_written_is_told_on_stderr_if_the_application_wants_that(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, wanted: bool
) -> None:
    """As ``logging`` itself does with errors of its handlers: ``logging.raiseExceptions``."""
    monkeypatch.setattr(logging, "raiseExceptions", wanted)
    logger = logging.getLogger("test.full_disk.quiet")
    logger.propagate = False
    logger.addHandler(FullDisk())
    SafeLog(logger).warning("lost")
    assert ("no space left on device" in capsys.readouterr().err) is wanted
