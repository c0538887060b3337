"""Invariants 1, 4, 5 and 12: what the consumer gets, and what is stored of it."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from property_support import (
    Host,
    at_fraction,
    expected_items,
    fractions,
    quickly,
    scripts,
    without_error_texts,
)

from micdrop_agent import Message
from micdrop_agent.messages import is_blank
from micdrop_agent.testing import BACKENDS, Call, ScriptedAgent, run_scenario, run_virtual
from micdrop_agent.testing.strategies import answers, chunks

if TYPE_CHECKING:
    from micdrop_agent import Answer, Turn
    from micdrop_agent.testing import Backend, Probe


def _assistant_text(items: list[Any] | None) -> str:
    return "".join(item.content for item in items or () if isinstance(item, Message) and item.role == "assistant")


@pytest.mark.parametrize("backend", BACKENDS)
@quickly
@given(script=scripts, fraction=fractions, lag=st.sampled_from((0.0, 0.05)))
def test_invariant_1_after_cancel_the_consumer_gets_no_further_chunk(
    backend: Backend, script: list[Any], fraction: float, lag: float
) -> None:
    trace = at_fraction(Host([script]), backend, "cancel", fraction, lag=lag)
    for answer in trace.answers:
        if answer.received_when_stopped is not None:
            assert len(answer.received) == answer.received_when_stopped


@pytest.mark.parametrize("backend", BACKENDS)
@quickly
@given(texts=chunks(min_size=1, max_size=8), readers=st.integers(1, 3), cancel_after=st.integers(0, 8))
def test_invariant_1_holds_for_a_chunk_that_was_already_handed_over(
    backend: Backend, texts: list[str], readers: int, cancel_after: int
) -> None:
    """Several readers wait in ``receive()``; whoever was given a chunk but did not run yet gets none after all."""
    got: list[str] = []
    late: list[str] = []
    cancelled = False

    async def scenario() -> None:
        async with ScriptedAgent(texts) as agent, anyio.create_task_group() as tasks:
            answer = agent.answer()

            async def listen() -> None:
                nonlocal cancelled
                async for chunk in answer:
                    (late if cancelled else got).append(chunk)
                    if len(got) == cancel_after and not cancelled:
                        agent.cancel()
                        cancelled = True

            for _ in range(readers):
                tasks.start_soon(listen)

    run_virtual(backend, scenario)
    assert not late
    assert got == texts[: len(got)]


@pytest.mark.parametrize("backend", BACKENDS)
@quickly
@given(
    script=scripts,
    fraction=fractions,
    inject=st.sampled_from(("cancel", "answer", "aclose", "close answer", "host scope", "stop reading")),
)
def test_invariant_4_what_was_received_is_a_prefix_of_what_was_written(
    backend: Backend, script: list[Any], fraction: float, inject: str
) -> None:
    planned, _, _ = expected_items(script)
    trace = at_fraction(Host([script]), backend, inject, fraction)
    received = trace.answers[0].received if trace.answers else []
    assert received == planned[: len(received)]


@pytest.mark.parametrize("backend", BACKENDS)
@quickly
@given(script=scripts)
def test_invariant_4_and_5_an_undisturbed_answer_is_received_and_stored_whole(
    backend: Backend, script: list[Any]
) -> None:
    """The oracle: without it, an answer that ends too early would pass every other test."""
    planned, items, failed = expected_items(script)
    trace = run_scenario(Host([script]), backend)
    answer = trace.answers[0]
    assert answer.received == planned
    assert answer.answer.status == ("failed" if failed else "completed")
    stored = without_error_texts(trace.final)
    assert stored == [Message("system", ""), Message("user", "Question 0"), *items]


@pytest.mark.parametrize("backend", BACKENDS)
@quickly
@given(script=scripts, fraction=fractions)
@example(script=[" ", Call("quick"), "One ", Call("quick"), "One "], fraction=0.5625)
def test_invariant_5_what_is_stored_of_a_cut_answer_is_what_was_received(
    backend: Backend, script: list[Any], fraction: float
) -> None:
    trace = at_fraction(Host([script]), backend, "cancel", fraction)
    answer = trace.answers[0] if trace.answers else None
    if answer is None or answer.answer.status != "cancelled":
        return
    heard = "".join(answer.received)
    stored = [item for item in trace.final if isinstance(item, Message) and item.role == "assistant"]
    assert "".join(_assistant_text(trace.final).split()) == "".join(heard.split())
    assert not any(is_blank(item.content) for item in stored)
    # A blank stretch is heard and not stored, so white space does not count here.
    whole = "".join(item.content for item in stored if not item.metadata)
    if "".join(heard.split()).removeprefix("".join(whole.split())):
        assert stored[-1].metadata == {"interrupted": True}


@pytest.mark.parametrize("backend", BACKENDS)
@quickly
@given(script=answers(failures=False), fraction=fractions, share=st.floats(0, 1))
def test_invariant_5_the_heard_prefix_is_stored_where_the_host_tells_it(
    backend: Backend, script: list[Any], fraction: float, share: float
) -> None:
    stored: list[str] = []
    heard_text: list[str] = []

    class Cut(Host):
        async def __call__(self, probe: Probe) -> None:
            await super().__call__(probe)
            assert self.agent is not None
            stored.append(_assistant_text(list(self.agent.conversation)))

    host = Cut([script])
    length = run_scenario(host, backend).steps
    stored.clear()

    # `cancel(heard)` of the sweep tells half of what was received; here any share of it.
    from micdrop_agent.testing._sweep import INJECTIONS, _open_agent

    def cancel_with_share(run: Any) -> None:
        agent, current = _open_agent(run), run.probe.current
        if agent is None or current is None:
            return
        received = "".join(current.received)
        heard_text.append(received[: int(share * len(received))])
        agent.cancel(heard=len(heard_text[0]))

    INJECTIONS["share"] = cancel_with_share
    try:
        run_scenario(host, backend, inject="share", step=1 + int(fraction * length))
    finally:
        del INJECTIONS["share"]
    if heard_text and stored:
        assert "".join(stored[0].split()) == "".join(heard_text[0].split())


@pytest.mark.parametrize("backend", BACKENDS)
@quickly
@given(
    texts=chunks(max_size=6),
    leave_after=st.integers(0, 6),
    how=st.sampled_from(("break", "raise", "never", "close", "time out")),
    buffer_size=st.sampled_from((None, 0, 1, 2)),
)
def test_invariant_12_a_consumer_may_stop_reading_at_any_time(
    backend: Backend, texts: list[str], leave_after: int, how: str, buffer_size: int | None
) -> None:
    """The producer ends or is stopped, nothing hangs, and the next answer is whole."""
    say: list[str] = list(texts)

    async def script(turn: Turn) -> None:
        for text in tuple(say):
            await turn.write(text)

    async def scenario() -> list[str]:
        async with ScriptedAgent([script], buffer_size=buffer_size) as agent:
            answer = agent.answer()
            if how != "never":
                with anyio.move_on_after(0.001 if how == "time out" else 5), contextlib.suppress(LookupError):
                    await _read_some(answer, leave_after, how)
            if how == "close":
                await answer.aclose()
            say[:] = ["All ", "of it."]
            return [chunk async for chunk in agent.answer()]

    assert run_virtual(backend, scenario) == ["All ", "of it."]


async def _read_some(answer: Answer, leave_after: int, how: str) -> None:
    taken = 0
    async for _ in answer:
        taken += 1
        if taken >= leave_after:
            break
        if how == "time out":
            await anyio.sleep(0.01)
    if how == "raise":
        raise LookupError("the host's own")
