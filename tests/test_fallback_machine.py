"""Rotation, health and cancellation of a ``FallbackAgent`` over many answers, against a small model of them.

A list of operations is played on one agent, on both event loops, and on the model; they must agree after each.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import anyio
import attrs
import pytest
from hypothesis import given, note
from hypothesis import strategies as st
from property_support import searching

from fallback_kit import Cast, Heard, down, listen
from micdrop_agent.fallback import HealthRegistry
from micdrop_agent.testing import BACKENDS, Backend, ScriptedAgent, run_virtual

if TYPE_CHECKING:
    from collections.abc import Callable

    from micdrop_agent._core.agent import Agent
    from micdrop_agent._core.turn import Turn
    from micdrop_agent.fallback import FallbackAgent

Mood: TypeAlias = Literal["ok", "server", "auth", "rate_limit", "quota", "bad_request", "bug", "hang", "factory"]
MOODS: tuple[Mood, ...] = ("ok", "server", "auth", "rate_limit", "quota", "bad_request", "bug", "hang", "factory")
TIMEOUT = 1.0
LIMIT = 2
"""Counted failures in a row that open the circuit here."""


@attrs.frozen
class Ask:
    """One answer, with the mood of each child, and perhaps a barge-in so many seconds into it."""

    moods: tuple[Mood, ...]
    barge_in: float | None


@attrs.frozen
class Wait:
    seconds: float


@attrs.frozen
class Reset:
    child: int


Op: TypeAlias = Ask | Wait | Reset


def speaks_after(index: int) -> float:
    return 0.2 + 0.03 * index


def fails_after(index: int) -> float:
    return 0.05 + 0.01 * index


@st.composite
def plays(draw: st.DrawFn) -> tuple[int, Literal["current", "first"], list[Op]]:
    count = draw(st.integers(1, 4))
    # A barge-in never falls into the tick of anything else.
    barge_ins = st.none() | st.none() | st.integers(0, 30).map(lambda tick: 0.0507 + tick * 0.0731)
    moods = st.tuples(*[st.sampled_from(("ok", *MOODS)) for _ in range(count)])
    asks = st.builds(Ask, moods, barge_ins)
    waits = st.builds(Wait, st.sampled_from([0.1, 2.0, 4.0, 30.0]))
    resets = st.builds(Reset, st.integers(0, count - 1))
    ops = draw(st.lists(asks | asks | asks | waits | resets, min_size=1, max_size=12))
    return count, draw(st.sampled_from(("current", "first"))), ops


# -- the model


@attrs.define
class Child:
    failures: int = 0
    openings: int = 0
    until: float | None = None

    def state(self, now: float) -> str:
        return "closed" if self.until is None else "half_open" if now >= self.until else "open"

    def fail(self, mood: Mood, now: float) -> None:
        at_once = {"auth": math.inf, "rate_limit": 3.0, "quota": 20.0}
        if mood == "bad_request":
            return
        if mood in at_once:
            self.until = max(self.until or 0.0, now + at_once[mood])
            return
        was_out = self.state(now) == "open"
        self.failures += 1
        if not was_out and (self.failures >= LIMIT or self.until is not None):
            self.until = max(self.until or 0.0, now + 0.5 * min(300.0, 5.0 * 2**self.openings))
            self.openings += 1


@attrs.define
class Model:
    """Who is active, who is in, and what one answer does."""

    count: int
    prefer: str
    active: int = 0
    children: list[Child] = attrs.Factory(list)
    asked: list[int] = attrs.Factory(list)

    def order(self, now: float) -> list[int]:
        start = 0 if self.prefer == "first" else self.active
        ring = [(start + step) % self.count for step in range(self.count)]
        rank = {"closed": 0, "half_open": 1, "open": 2}

        def how_bad(index: int) -> tuple[int, float]:
            child = self.children[index]
            return rank[child.state(now)], max(0.0, (child.until or 0.0) - now)

        return sorted(ring, key=how_bad)

    def ask(self, op: Ask, now: float) -> tuple[str, list[tuple[int, int]], float]:
        """The status and text of the answer, its switches, and when it ended."""
        play = _Play(self, op, now)
        return play.run()


class _Play:
    def __init__(self, model: Model, op: Ask, now: float) -> None:
        self.model = model
        self.op = op
        self.began = now
        self.began_with = model.active
        self.cut = math.inf if op.barge_in is None else now + op.barge_in
        self.left = model.order(now)
        self.face = self.left[0]
        self.live: list[tuple[int, float]] = []
        self.switches: list[tuple[int, int]] = []

    def run(self) -> tuple[str, list[tuple[int, int]], float]:
        now = self.began
        going = self.go_on(now)
        if going and self.model.prefer == "first":
            self.probe(now)
        while going:
            now = min(self.ends(index, start) for index, start in self.live)
            if now > self.cut:
                return "cancelled", self.switches, self.cut
            ended = [(index, start) for index, start in self.live if self.ends(index, start) == now]
            for index, start in ended:
                if self.op.moods[index] == "ok":
                    return self.won(index, now)
                self.live.remove((index, start))
                self.model.children[index].fail(self.op.moods[index], now)
            going = self.go_on(now)
        self.model.active = self.began_with
        return "failed", self.switches, now

    def ends(self, index: int, start: float) -> float:
        mood = self.op.moods[index]
        return start + {"ok": speaks_after(index), "hang": TIMEOUT}.get(mood, fails_after(index))

    def won(self, index: int, now: float) -> tuple[str, list[tuple[int, int]], float]:
        self.announce(index)
        self.model.active = index
        self.model.children[index] = Child()
        return f"completed {index}", self.switches, now

    def go_on(self, now: float) -> bool:
        if self.live:
            self.announce(self.live[0][0])
            return True
        while self.left:
            if self.start(self.left.pop(0), now):
                return True
        return False

    def start(self, index: int, now: float) -> bool:
        if self.op.moods[index] == "factory":
            self.model.children[index].fail("bug", now)
            return False
        if not self.live:
            self.announce(index)
        self.live.append((index, now))
        self.model.asked[index] += 1
        return True

    def probe(self, now: float) -> None:
        healthy = self.live[0][0]
        for index in self.left:
            if index < healthy and self.model.children[index].state(now) == "half_open":
                self.left.remove(index)
                self.start(index, now)
                return

    def announce(self, index: int) -> None:
        if index != self.face:
            self.switches.append((self.face, index))
            self.face = self.model.active = index


# -- the real thing


class Moody(ScriptedAgent):
    """A child in the mood of the day; it is built anew for each answer, so that its factory has a mood too."""

    def __init__(self, index: int, stage: Stage) -> None:
        super().__init__()
        self.index = index
        self.stage = stage

    async def generate_answer(self, turn: Turn) -> None:
        self.asked += 1
        mood = self.stage.moods[self.index]
        self._state = "closed"  # no more than one answer from each make
        if mood == "hang":
            await anyio.sleep_forever()
        elif mood == "ok":
            await anyio.sleep(speaks_after(self.index))
            await turn.write(f"{self.index}")
        else:
            await anyio.sleep(fails_after(self.index))
            raise ValueError("bug") if mood == "bug" else down(mood, retry_after=3.0 if mood == "rate_limit" else None)


@attrs.define(eq=False)
class Stage:
    moods: tuple[Mood, ...] = ()

    def factory(self, index: int) -> Callable[[], Agent]:
        def make() -> Agent:
            if self.moods and self.moods[index] == "factory":
                raise OSError("not today")
            return Moody(index, self)

        return make


@attrs.define(eq=False)
class Bench:
    """The supervisor and the model, side by side."""

    model: Model
    stage: Stage
    cast: Cast
    health: HealthRegistry

    async def play(self, ops: list[Op]) -> None:
        names = [str(index) for index in range(self.model.count)]
        async with self.cast.agent(
            health=self.health,
            prefer=self.model.prefer,
            first_chunk_timeout=TIMEOUT,
            names=names,
            raise_on_failure=False,
        ) as agent:
            for op in ops:
                note(f"{anyio.current_time():.3f} {op}")
                if isinstance(op, Wait):
                    await anyio.sleep(op.seconds)
                elif isinstance(op, Reset):
                    self.reset(op.child)
                else:
                    await self.ask(agent, op)
                self.compare(agent)

    def reset(self, child: int) -> None:
        if str(child) in self.health.snapshot():
            self.health.reset(str(child))
        self.model.children[child] = Child()

    async def ask(self, agent: FallbackAgent, op: Ask) -> None:
        self.stage.moods = op.moods
        for slot in agent._core.slots:
            agent._core.discard(slot)  # what is built already has no mood for its factory any more
        started = anyio.current_time()
        wanted, switches, ended = self.model.ask(op, started)
        heard = Heard()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(listen, agent, heard)
            if op.barge_in is not None:
                await anyio.sleep(op.barge_in)
                agent.cancel()
        status, _, text = wanted.partition(" ")
        assert (heard.result.status, heard.text) == (status, text)
        assert [(int(old), int(new)) for old, new, _ in heard.switches] == switches
        assert heard.result.duration == pytest.approx(ended - started)
        await anyio.sleep(0.01)  # the supervisor learns of the barge-in a moment later

    def compare(self, agent: FallbackAgent) -> None:
        now = anyio.current_time()
        assert agent.active_name == str(self.model.active)
        assert self.cast.asked() == self.model.asked
        for index, child in enumerate(self.model.children):
            assert self.health.state(str(index)) == child.state(now), index
            assert self.health.seconds_until_retry(str(index)) == pytest.approx(max(0.0, (child.until or 0.0) - now))


@pytest.mark.parametrize("backend", BACKENDS)
@searching(80)
@given(play=plays())
def test_rotation_health_and_cancellation_are_those_of_the_model(backend: Backend, play: Any) -> None:
    count, prefer, ops = play
    stage = Stage()
    bench = Bench(
        Model(count, prefer, children=[Child() for _ in range(count)], asked=[0] * count),
        stage,
        Cast(*[stage.factory(index) for index in range(count)]),
        HealthRegistry(failures=LIMIT, quota_back_off=20.0, chance=lambda: 0.5),
    )
    run_virtual(backend, bench.play, ops)
