"""A drain: nothing new, nobody cut inside a turn before the deadline, nobody there after it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from property_support import searching

from micdrop_agent.call import AsItComes, Call, CallRefusedError, Drain
from micdrop_agent.testing import (
    BACKENDS,
    HANG,
    CallProbe,
    ScriptedAgent,
    ScriptedSTT,
    ScriptedTTS,
    assert_no_leaks,
    check_call,
    memory_link,
    run_virtual,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from micdrop_agent.testing import Backend, MemoryClient


@pytest.fixture(autouse=True)
def _no_log() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


class Talk:
    """One call in a worker, and how it ended."""

    def __init__(self, *script: Any, heard: tuple[Any, ...] = ("Hello?",), **options: Any) -> None:
        self.link, self.client = memory_link()
        self.probe = CallProbe()
        voice = ScriptedTTS()
        self.agent = ScriptedAgent(*script)
        self.call = Call(self.link, agent=self.agent, stt=ScriptedSTT(*heard), tts=voice, **options)
        self.probe.watch(self.call, self.client, voice)
        self.refused = False
        self.ended_at: float | None = None

    async def run(self, drain: Drain) -> None:
        try:
            await drain.run(self.call)
        except CallRefusedError as error:
            self.refused = True
            await self.link.close(error.code)
        finally:
            self.ended_at = anyio.current_time()
            self.probe.over()


@pytest.mark.parametrize("backend", BACKENDS)
def test_each_call_ends_with_its_turn(backend: Backend) -> None:
    """One that is idle leaves at once, one that is answering when the answer was heard; a new one is refused."""
    idle, busy, late = Talk(["Yes."]), Talk(["One two. Three", 3.0, " four."], speech=AsItComes), Talk(["Yes."])

    async def scenario() -> None:
        async with assert_no_leaks(), Drain(grace=30) as drain, anyio.create_task_group() as tasks:
            tasks.start_soon(idle.run, drain)
            tasks.start_soon(busy.run, drain)
            await anyio.sleep(5)
            busy.client.speak()
            await anyio.sleep(0.01)
            assert (drain.calls, drain.draining, drain.refuses) == (2, False, None)
            drain.start()
            assert (drain.refuses, drain.drained) == ("draining", False)
            await late.run(drain)
            await drain.wait()
            assert drain.drained

    run_virtual(backend, scenario)
    assert late.refused
    assert [talk.client.closed for talk in (idle, busy, late)] == [(1001, "")] * 3
    assert idle.ended_at is not None
    assert idle.ended_at < 5.1
    # Its first words are heard, it pauses for 3 seconds, and says 6 more characters at 16 a second; then the tail: 8.625 s.
    assert busy.ended_at is not None
    # A rest of less than 100 ms is played after 600 ms more.
    assert 8.62 <= busy.ended_at <= 8.62 + 0.61
    assert busy.client.audio


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_call_whose_client_does_not_read_leaves_when_it_has(backend: Backend) -> None:
    slow = Talk(["Yes."])

    async def scenario() -> None:
        async with assert_no_leaks(), Drain(grace=30) as drain, anyio.create_task_group() as tasks:
            tasks.start_soon(slow.run, drain)
            await anyio.sleep(1)
            slow.client.stall()
            slow.client.speak()
            await anyio.sleep(1)
            drain.start()
            await anyio.sleep(3)
            assert drain.calls == 1
            slow.client.stall(False)
            await drain.wait()
            assert anyio.current_time() == pytest.approx(5 + 4 / 16 + 0.25, abs=0.1)

    run_virtual(backend, scenario)
    assert slow.client.audio


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_does_not_end_is_cut_at_the_deadline(backend: Backend) -> None:
    stuck = Talk([HANG], heard=("Hello?",))

    async def scenario() -> None:
        async with assert_no_leaks(), Drain(grace=7) as drain, anyio.create_task_group() as tasks:
            tasks.start_soon(stuck.run, drain)
            stuck.client.speak()
            await anyio.sleep(1)
            drain.start()
            await drain.wait()
            assert anyio.current_time() == pytest.approx(8, abs=0.05)

    run_virtual(backend, scenario)
    assert stuck.client.closed == (1001, "")


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_second_start_only_shortens_the_time(backend: Backend) -> None:
    async def scenario() -> None:
        async with Drain(grace=20) as drain:
            with drain.seat(cut=lambda: None):
                drain.start()
                drain.start(grace=100)
                await anyio.sleep(2)
                drain.start(grace=0)
                await drain.wait()
            assert 5 <= anyio.current_time() <= 5.1  # a seat that does not let go keeps nobody for ever

    run_virtual(backend, scenario)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_whole_call_may_end_where_that_is_asked_for(backend: Backend) -> None:
    talk = Talk(["Yes."])

    async def scenario() -> None:
        async with Drain(grace=30, wait_for="call") as drain, anyio.create_task_group() as tasks:
            tasks.start_soon(talk.run, drain)
            await anyio.sleep(1)
            drain.start()
            await anyio.sleep(10)
            assert drain.calls == 1
            talk.client.speak()
            await anyio.sleep(3)
            talk.client.close()
            await drain.wait()
            assert anyio.current_time() == pytest.approx(14)

    run_virtual(backend, scenario)
    assert talk.client.closed == (1000, "")


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_client_that_was_asked_to_hang_up_is_not_called_back(backend: Backend) -> None:
    def hang_up(turn: Any) -> None:
        turn.end_call()

    talk = Talk(["Bye.", hang_up])

    async def scenario() -> None:
        async with Drain(grace=10) as drain, anyio.create_task_group() as tasks:
            tasks.start_soon(talk.run, drain)
            talk.client.speak()
            await talk.client.receives("EndCall")
            drain.start()
            await drain.wait()
            assert anyio.current_time() > 10  # it has the time to

    run_virtual(backend, scenario)
    assert talk.client.closed == (1000, "")


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_full_worker_refuses(backend: Backend) -> None:
    async def scenario() -> None:
        async with Drain(capacity=2) as drain:
            with drain.seat(cut=lambda: None):
                with drain.seat(cut=lambda: None):
                    assert (drain.load, drain.refuses) == (1.0, "full")
                    with pytest.raises(CallRefusedError) as refused, drain.seat(cut=lambda: None):
                        pass
                    assert refused.value.code == 1001
                assert (drain.load, drain.refuses, drain.refused) == (0.5, None, 1)

    run_virtual(backend, scenario)


async def test_a_worker_that_is_late_refuses_until_it_has_caught_up() -> None:
    async with Drain(max_lag=0.02) as drain:
        lag = drain._lag
        for _ in range(20):
            lag.note(0.05)
        assert drain.refuses == "late"
        assert drain.load > 1
        with pytest.raises(CallRefusedError), drain.seat(cut=lambda: None):
            pass
        for _ in range(20):
            lag.note(0.0)
        assert drain.refuses is None


def test_wrong_options_are_named() -> None:
    with pytest.raises(ValueError, match="wait_for"):
        Drain(wait_for="never")  # type: ignore[arg-type]  # an untyped caller
    with pytest.raises(ValueError, match="capacity"):
        Drain(capacity=0)
    with pytest.raises(ValueError, match="grace"):
        Drain(grace=-1)
    with pytest.raises(RuntimeError, match="not open"):
        Drain().start()


# -------------------------------------------------------------------------------- any calls, any time

steps = st.sampled_from(["speak", "start", "stop", "audio", "mute", "wait", "stall"])
stories = st.lists(
    st.lists(st.tuples(steps, st.floats(0, 3).map(lambda seconds: round(seconds, 2))), max_size=8), max_size=4
)


_FRAMES: dict[str, str | bytes] = {
    "start": "StartSpeaking",
    "stop": "StopSpeaking",
    "audio": bytes(3200),
    "mute": "Mute",
}


def _act(client: MemoryClient, step: str) -> None:
    if step == "speak":
        client.speak()
    elif step == "stall":
        client.stall(not client.stalled)
    elif step != "wait":
        client.put(_FRAMES[step])


async def _live(talk: Talk, story: list[tuple[str, float]]) -> None:
    for step, seconds in story:
        _act(talk.client, step)
        await anyio.sleep(seconds)


def _in_a_turn(talk: Talk) -> str | None:
    """What was going on when the call ended, by the frames alone; ``None``: nothing.

    A loudspeaker of our own: audio plays in order, from when it came.
    """
    state, plays_until = "the client waits", 0.0
    for entry in talk.probe.log:
        if entry.taken and entry.name in _AFTER:
            state = _AFTER[entry.name]
            if entry.name != "StopSpeaking":
                plays_until = entry.at
        elif not entry.taken and state != "the caller speaks" and entry.name in _RELEASES:
            state = ""
        if isinstance(entry.frame, bytes) and not entry.taken:
            plays_until = max(plays_until, entry.at) + len(entry.frame) / 32_000
    assert talk.ended_at is not None
    return state or ("an answer is heard" if plays_until > talk.ended_at + 1e-3 else None)


_AFTER = {"StartSpeaking": "the caller speaks", "StopSpeaking": "the client waits", "Mute": ""}
_RELEASES = {"audio", "SkipAnswer", "CancelLastUserMessage"}


@pytest.mark.parametrize("backend", BACKENDS)
@given(
    many=stories,
    at=st.floats(0.01, 12).map(lambda seconds: round(seconds, 3)),
    grace=st.sampled_from([0.0, 1.0, 4.0, 30.0]),
    first=st.booleans(),
)
@searching(20)
def test_no_call_is_cut_inside_a_turn_none_outlives_the_deadline_and_none_is_new(
    backend: Backend, many: list[list[tuple[str, float]]], at: float, grace: float, first: bool
) -> None:
    texts = ["One two. Three", 2.0, " four five."]
    options: dict[str, Any] = {"first_message": "Welcome!" if first else None, "speech": AsItComes}
    talks = [Talk(texts, [0.7, "Yes."], ["No."], heard=([0.3, "Hello?"], "And?", "", "So."), **options) for _ in many]
    late = [Talk(["Yes."]) for _ in range(2)]

    async def scenario() -> None:
        async with assert_no_leaks(), Drain(grace=grace) as drain, anyio.create_task_group() as tasks:
            for talk, story in zip(talks, many, strict=True):
                tasks.start_soon(talk.run, drain)
                tasks.start_soon(_live, talk, story)
            await anyio.sleep(at)
            drain.start()
            await late[0].run(drain)
            await drain.wait()
            await late[1].run(drain)
            assert drain.calls == 0

    run_virtual(backend, scenario)
    for talk in talks:
        assert talk.client.closed == (1001, "")
        assert talk.ended_at is not None
        assert talk.ended_at <= at + grace + 1e-6
        if talk.ended_at < at + grace - 1e-6:
            assert _in_a_turn(talk) is None, talk.client.names
        talk.probe.patience = at + grace + 1  # a turn that stalls is cut at the deadline, and no sooner
        check_call(talk.probe)
    assert all(talk.refused and not talk.client.frames for talk in late)
