"""Interrupts recorded calls at thousands of points, in few milliseconds each: one event loop for all points of a call.

A sweep of the kit starts a loop for each point. Here the loop stays, and the pieces of a response that came one by one are
joined to a few: what is swept are the steps, and a dozen of words in a row have the same ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import attrs
from cassette_stories import QUESTIONS

from micdrop_agent.testing import Cassette, Probe, check_invariants, read, run_virtual, talk
from micdrop_agent.testing._disturbance import Disturbance
from micdrop_agent.testing._sweep import INJECTIONS, NATIVE, _host_task, _play, _Run

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from cassette_stories import Story

    from micdrop_agent.messages import Item
    from micdrop_agent.testing._tape import Recording

PIECES: Final = 4
"""Pieces that are left of each response."""


def thinned(story: Story) -> Cassette:
    """The cassette of ``story`` with at most ``PIECES`` pieces in each response."""
    cassette = Cassette(story.file, "replay")
    for recording in cassette._tape.recordings:
        recording.body[:] = _joined(recording)
    return cassette


def _joined(recording: Recording) -> list[tuple[float, bytes]]:
    body = recording.body
    size = -(-len(body) // PIECES) or 1
    groups = [body[at : at + size] for at in range(0, len(body), size)]
    return [(group[-1][0], b"".join(piece for _, piece in group)) for group in groups]


@attrs.define(eq=False)
class _Point:
    """Where the run is."""

    run: _Run
    inject: str | None
    step: int
    begun_at: int = 0


class Sweep:
    """All points of one answer of a call, on one event loop.

    Args:
        story: The call.
        number: Which answer of it, from 0; what was said before it is there already.
        backend: The event loop.
    """

    def __init__(self, story: Story, number: int, backend: str) -> None:
        self.story = story
        self.backend = backend
        self.points = 0
        self._number = number
        self._cassette = thinned(story)
        self._before: list[Item] = []
        self._point: _Point | None = None
        self._steps = 0

    def run(self, *, every: int = 1, first: int = 1) -> int:
        """Interrupt in each way at each ``every``-th step, from ``first`` on; the number of points."""
        Disturbance.happened = True  # the history was not recorded as it is here: the nearest request answers
        try:
            self._virtually(self._have_said)
            self._virtually(self._all, every, first)
        finally:
            Disturbance.happened = False
        return self.points

    def _virtually(self, work: Callable[..., Awaitable[None]], *args: int) -> None:
        self._steps = 0
        limits: dict[str, Any] = {"time_limit": 1e9, "max_steps": 10**9}
        run_virtual(self.backend, work, *args, on_step=self._on_step, **limits)

    async def _have_said(self) -> None:
        """Have the answers before this one."""
        async with self.story.make(self._cassette.connect) as agent:
            for question in QUESTIONS[: self._number]:
                await talk(agent, question)
            self._before = list(agent.conversation)

    async def _all(self, every: int, first: int) -> None:
        names = [name for name in INJECTIONS if self.backend != "trio" or name not in NATIVE]
        steps = await self._one(None, 0)
        # Each way takes other steps, so that a part of them is a part of each.
        for shift, name in enumerate(names):
            for step in range(1 + (first + shift) % every, steps + 1, every):
                await self._one(name, step)
                self.points += 1

    async def _one(self, inject: str | None, step: int) -> int:
        run = _Run(Probe())
        self._point = _Point(run, inject, step, self._steps)
        await _play(self._scenario, run)
        self._point = None
        try:
            check_invariants(run.probe.trace)
        except AssertionError as error:
            raise AssertionError(f"{self.story.name}: {error} ({inject} at step {step} on {self.backend})") from error
        if inject is None:
            assert [trace.answer.status for trace in run.probe.trace.answers] == ["completed"]
        return run.probe.trace.steps

    async def _scenario(self, probe: Probe) -> None:
        async with self.story.make(self._cassette.connect) as agent:
            agent.conversation.replace(self._before)
            probe.watch(agent)
            agent.add_user_message(QUESTIONS[self._number])
            await read(probe, agent.answer())

    def _on_step(self, number: int) -> None:
        self._steps = number
        point = self._point
        if point is None or point.run.scope is None:
            return
        at = number - point.begun_at
        if point.inject is not None and at == point.step:
            INJECTIONS[point.inject](point.run)
        elif point.run.again and at > point.step:
            point.run.again = False
            _host_task(point.run)
        point.run.probe.trace.steps = at
        point.run.probe.at_step()
