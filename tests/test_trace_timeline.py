from __future__ import annotations

import pytest

from micdrop_agent import (
    Agent,
    AllAgentsFailedError,
    AnswerResult,
    ChatAgent,
    FallbackAgent,
    ProviderError,
    Retry,
    Timeouts,
    TraceEvent,
    tool,
)
from micdrop_agent.testing import (
    BACKENDS,
    HANG,
    Backend,
    ScriptedAgent,
    ScriptedProvider,
    call_tool,
    fault,
    parts,
    run_virtual,
    say,
)
from micdrop_agent.tracing.timeline import Bar, Timeline, timeline

pytestmark = pytest.mark.parametrize("backend", BACKENDS)


@tool
async def look(where: str = "sofa") -> str:
    """Look."""
    import anyio

    await anyio.sleep(0.3)
    if where == "moon":
        raise ValueError("too far")
    return "nothing"


def shown(bars: tuple[Bar, ...]) -> list[str]:
    return [
        f"{bar.kind} {bar.name} {bar.start:.2f}-{bar.end:.2f} {bar.outcome}"
        + (f" in {bar.parent.name}" if bar.parent is not None else "")
        for bar in bars
    ]


def asked(backend: Backend, agent: Agent, cancel_after: int | None = None) -> Timeline:
    async def scenario() -> Timeline:
        async with agent:
            agent.add_user_message("Hi!")
            answer = agent.answer()
            if cancel_after is not None:
                for _ in range(cancel_after):
                    await answer.receive()
                agent.cancel()
            return timeline(await answer.wait())

    return run_virtual(backend, scenario)


def with_server(backend: Backend, script: list[object], **options: object) -> Timeline:
    async def scenario() -> Timeline:
        async with ScriptedProvider(script) as provider:  # type: ignore[arg-type]
            agent = ChatAgent(
                base_url=provider.base_url,
                model="m",
                connect=provider.connect,
                tools=[look],
                **options,  # type: ignore[arg-type]
            )
            async with agent:
                agent.add_user_message("Hi!")
                return timeline(await agent.answer().wait())

    return run_virtual(backend, scenario)


def test_a_turn_with_tools_shows_its_requests_and_its_tools(backend: Backend) -> None:
    got = with_server(backend, [call_tool("look", {"where": "moon"}), say("Too ", "far.", gap=0.1)])
    assert shown(got.bars) == ["request m 0.00-0.00 ok", "tool look 0.00-0.30 failed", "request m 0.30-0.50 ok"]
    assert [mark.kind for mark in got.marks] == ["first_chunk", "end"]
    assert got.duration == pytest.approx(0.5)
    assert got.bars[0].facts["finish"] == "tool_calls"
    assert got.bars[0].facts["first_byte"] == 0.0


def test_a_retry_shows_its_wait_and_why(backend: Backend) -> None:
    got = with_server(backend, [fault("status"), say("Hi!")], retry=Retry(first_wait=0.5, jitter=0))
    assert shown(got.bars) == ["request m 0.00-0.00 failed", "wait overloaded 0.00-0.50 ok", "request m 0.50-0.50 ok"]
    assert got.bars[0].facts["error"] == "overloaded"


def test_a_request_that_ran_into_our_clock_failed(backend: Backend) -> None:
    got = with_server(backend, [parts([{"silence": True}])], timeouts=Timeouts(first_chunk=2), raise_on_failure=False)
    assert shown(got.bars) == ["request m 0.00-2.00 failed"]
    assert got.bars[0].facts["error"] == "timeout"


def test_a_failed_child_is_followed_by_the_next(backend: Backend) -> None:
    down = ProviderError("down", kind="server")
    agent = FallbackAgent(
        [lambda: ScriptedAgent([0.2, down]), lambda: ScriptedAgent([0.1, "Hi!", 0.1])], names=["a", "b"]
    )
    got = asked(backend, agent)
    assert shown(got.bars) == ["attempt a 0.00-0.20 failed", "attempt b 0.20-0.40 ok"]
    assert [mark.kind for mark in got.marks] == ["switch", "first_chunk", "end"]
    assert got.bars[0].facts["error"] == "server"


def test_a_hedge_that_loses_ends_when_the_other_wins(backend: Backend) -> None:
    agent = FallbackAgent(
        [lambda: ScriptedAgent([0.5, "Hi!", 0.5]), lambda: ScriptedAgent([HANG])], hedge_after=0.2, names=["a", "b"]
    )
    assert shown(asked(backend, agent).bars) == ["attempt a 0.00-1.00 ok", "attempt b 0.20-0.50 lost"]
    agent = FallbackAgent(
        [lambda: ScriptedAgent([HANG]), lambda: ScriptedAgent([0.1, "Hi!", 0.5])], hedge_after=0.2, names=["a", "b"]
    )
    assert shown(asked(backend, agent).bars) == ["attempt a 0.00-0.30 lost", "attempt b 0.20-0.80 ok"]


def test_children_of_children_stand_in_their_parents(backend: Backend) -> None:
    down = ProviderError("down", kind="server")

    def inner() -> Agent:
        return FallbackAgent([lambda: ScriptedAgent([0.1, down]), lambda: ScriptedAgent([0.1, down])], names=["x", "y"])

    agent = FallbackAgent([inner, lambda: ScriptedAgent([0.1, "Hi!"])], names=["in", "b"])
    assert shown(asked(backend, agent).bars) == [
        "attempt in 0.00-0.20 failed",
        "attempt x 0.00-0.10 failed in in",
        "attempt y 0.10-0.20 failed in in",
        "attempt b 0.20-0.30 ok",
    ]


def test_a_barge_in_cuts_what_ran(backend: Backend) -> None:
    # It goes on after the second chunk: one that ends with it may have ended when the reader gets it.
    agent = FallbackAgent([lambda: ScriptedAgent(["Well, ", 0.5, "you know", 0.5, "it"])], names=["a"])
    got = asked(backend, agent, cancel_after=2)
    assert shown(got.bars) == ["attempt a 0.00-0.50 cut"]
    assert [mark.kind for mark in got.marks] == ["first_chunk", "cancel", "end"]


def test_a_trace_that_makes_no_sense_still_gives_a_timeline(backend: Backend) -> None:
    events = [
        TraceEvent(0.1, "failed_attempt", {"agent": "never begun", "error": "ValueError"}),
        TraceEvent(0.2, "headers", {}),
        TraceEvent(0.3, "response", {"number": 9}),
        TraceEvent(0.4, "tool_ended", {"call": "?"}),
        TraceEvent(0.5, "first_chunk", {"agent": "nobody"}),
        TraceEvent(2.0, "retry", {}),
    ]
    error = AllAgentsFailedError([])
    got = timeline(AnswerResult(text="", status="failed", error=error, duration=1.0, trace=tuple(events)))
    assert shown(got.bars) == ["attempt never begun 0.10-0.10 failed", "wait None 2.00-2.00 ok"]
    assert got.duration == 2.0
    assert timeline(AnswerResult(text="", status="completed")).bars == ()
