"""The soak against hostile servers: many calls at once over lines in memory, so that waiting costs nothing.

    round: callers ──▶ answers from ``hostile_servers.EVERY``, barged into ──▶ all gone ──▶ sample ──▶ next round

Beside what ``soak_worker`` looks at between two rounds: how an answer may end, what is stored of it, and the longest step of the
event loop, in CPU time of its thread, so that a busy machine changes no verdict.
"""

from __future__ import annotations

import functools
import gc
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, TypeGuard

import attrs
from hostile_servers import ATTACKS, HONEST, Line
from soak_calls import TOOLS, Caller
from soak_worker import Soak

from micdrop_agent import ChatAgent, FallbackAgent, HealthRegistry, Message, MicdropError, MistralAgent, Retry, Timeouts
from micdrop_agent._core.core import core_of

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence

    from anyio.abc import ByteStream
    from hostile_servers import Step

    from micdrop_agent import Agent, Answer
    from micdrop_agent.messages import Item

CLOCKS: Final = Timeouts(connect=2.0, first_chunk=0.15, between_chunks=0.15, total=2.0)

LONG_STEP_S: Final = 0.02
"""Goal for one step of the event loop."""

MOST_LONG: Final = 2e-4
"""Share of steps that may be longer: another process may have cleared the caches in one."""

LONGEST_S: Final = 0.25
"""No step may be as long as this."""


class Lines:
    """Takes the place of the server."""

    base_url = "http://hostile.test/v1"

    def __init__(self) -> None:
        self.alive: set[Line] = set()
        self.attacks: Counter[str] = Counter()

    def open_connections(self) -> int:
        """Lines that nobody has closed."""
        return len(self.alive)

    def close(self) -> None:
        """Nothing is open."""

    async def connect(self, dice: random.Random, _host: str, _port: int, _tls: bool) -> ByteStream:
        """Another line."""
        if dice.random() < 0.02:
            raise ConnectionRefusedError("nobody is here")
        return Line(functools.partial(self._attack, dice), dice, self.alive)

    def _attack(self, dice: random.Random) -> Sequence[Step]:
        kinds = HONEST if dice.random() < 0.4 else ATTACKS
        name = dice.choice(list(kinds))
        self.attacks[name] += 1
        return kinds[name](dice)


@attrs.define(eq=False)
class HostileCaller(Caller):
    """Calls agents that are connected to ``lines``."""

    lines: Lines = attrs.field(kw_only=True)

    def _agent(self) -> Agent:
        kind = self.dice.choice(["chat", "chat", "mistral", "fallback", "hedged"])
        if kind in {"chat", "mistral"}:
            return self._single(kind, self.base_url)
        children = [functools.partial(self._single, "chat", self.base_url) for _ in range(self.dice.randrange(1, 4))]
        return FallbackAgent(
            children,
            names=[f"child {number}" for number in range(len(children))],
            hedge_after=0.02 if kind == "hedged" else None,
            health=HealthRegistry(hedge_budget=1.0),
            after_partial=self.dice.choice(["continue", "restart", "stop"]),
            first_chunk_timeout=0.2,
        )

    def _single(self, kind: str, url: str) -> Agent:
        options: dict[str, Any] = {
            "model": "soak",
            "api_key": "key",
            "base_url": url,
            "connect": functools.partial(self.lines.connect, self.dice),
            "system_prompt": "You answer the telephone.",
            "tools": list(TOOLS),
            "timeouts": CLOCKS,
            "retry": Retry(max_retries=self.dice.choice([0, 0, 1]), first_wait=0.01),
            "parallel_tools": self.dice.random() < 0.5,
            "buffer_size": self.dice.choice([None, None, 0, 3]),
        }
        return MistralAgent(**options) if kind == "mistral" else ChatAgent(**options)

    async def _turn(self, agent: Agent) -> None:
        core = core_of(agent)
        answers: list[Answer] = []
        core.began.append(answers.append)
        before = len(agent.conversation)
        try:
            await super()._turn(agent)
        finally:
            core.began.remove(answers.append)
        for answer in answers:
            if answer.ended:
                error = answer.result.error
                assert error is None or isinstance(error, MicdropError), f"ended with {error!r}"
        # What is stored was written, in that order, and nothing else is.
        written = _letters("".join(answer.ledger.text for answer in answers))
        stored = [_letters(item.content) for item in agent.conversation[before:] if _spoken(item)]
        for text in stored:
            assert text in written, f"{stored} is stored, {written!r} was written"


def _letters(text: str) -> str:
    return "".join(text.split())


def _spoken(item: Item) -> TypeGuard[Message]:
    return isinstance(item, Message) and item.role == "assistant"


class Steps:
    """Measures each step of an event loop, in CPU time of this thread."""

    def __init__(self) -> None:
        self._began = self._collecting = self._collected = 0.0
        self.forget()

    def forget(self) -> None:
        """Count from zero."""
        self.count = self.long = 0
        self.longest = 0.0

    def before_task_step(self, _task: object) -> None:
        """Trio begins a step."""
        self._began = time.thread_time()

    def after_task_step(self, _task: object) -> None:
        """Trio has done a step."""
        self.took(time.thread_time() - self._began)

    def collects(self, phase: str, _info: object) -> None:
        """Python collects garbage: with a hundred calls that takes longer than any step, and is nobody's doing."""
        if phase == "start":
            self._collecting = time.thread_time()
        else:
            self._collected += time.thread_time() - self._collecting

    def took(self, seconds: float) -> None:
        """A step took so long."""
        seconds, self._collected = seconds - self._collected, 0.0
        self.count += 1
        self.longest = max(self.longest, seconds)
        if seconds > LONG_STEP_S:
            self.long += 1

    def watch(self, loop: str) -> None:
        """From now on; the steps of uvloop are not ours to see."""
        gc.callbacks.append(self.collects)
        if loop == "trio":
            import trio

            trio.lowlevel.add_instrument(self)  # type: ignore[arg-type]  # the methods that it has are enough
        elif loop == "asyncio":
            from asyncio import events

            run: Callable[[Any], None] = events.Handle._run

            def measured(handle: Any) -> None:
                began = time.thread_time()
                run(handle)
                self.took(time.thread_time() - began)

            events.Handle._run = measured  # type: ignore[method-assign,assignment]  # that is how it is measured


class HostileSoak(Soak):
    """One run."""

    callers = 120

    def __init__(self, loop: str, seconds: float, seed: int) -> None:
        self.lines = Lines()
        self.loop = loop
        self.steps = Steps()
        self._warm = False
        super().__init__(self.lines, seconds, seed)

    def take(self, *, quiet: bool) -> None:
        """See ``Soak.take``; what the first round has imported is no step of a call."""
        super().take(quiet=quiet)
        if quiet and not self._warm:
            self._warm = True
            self.steps.forget()

    def caller(self, dice: random.Random) -> Caller:
        """Somebody who calls."""
        return HostileCaller(Lines.base_url, dice, self.tally, lines=self.lines)

    async def run(self) -> None:
        """See ``Soak.run``."""
        self.steps.watch(self.loop)
        await super().run()
        self.tally["kinds of servers"] = len(self.lines.attacks)
        self.tally["requests"] = sum(self.lines.attacks.values())
        self.tally["steps"] = self.steps.count
        self.tally["steps over 20 ms"] = self.steps.long
        self.tally["longest step in ms"] = round(self.steps.longest * 1e3)

    def complaints(self) -> list[str]:
        """What is wrong besides leaks."""
        steps = self.steps
        found: list[str] = []
        if steps.long > max(2, steps.count * MOST_LONG):
            found.append(f"{steps.long} of {steps.count} steps of the loop took longer than 20 ms of CPU time")
        if steps.longest > LONGEST_S:
            found.append(f"a step of the loop took {steps.longest:.3f} s of CPU time")
        return found
