"""Groups C and D: many answers at once, random ones, and reading by hand from other tasks."""

from __future__ import annotations

import copy
import random
from typing import TYPE_CHECKING, Any

import anyio
import attrs

from bodies import calls_are_paired
from case_agents import UnknownWordError
from micdrop_agent import wire

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from case_steps import Host
    from case_world import World
    from micdrop_agent import Agent

SIZED = ("churn", "fuzz")
"""Steps whose whole numbers say how much is to be done; the format does not list their names."""

_MANY = ("agents", "workers", "parallel", "tasks", "consumers", "at_once")
_TIMES = ("times", "rounds", "answers", "turns", "cancels", "runs", "n", "seeds", "schedules", "count")
_OTHERS = ("cancel_after_ms", "seconds", "pool", "seed", "cancel")
_WORDS = ("actions", "words", "of", "ops", "choose")


def _size(step: dict[str, Any], names: tuple[str, ...], otherwise: int) -> int:
    return next((int(step[name]) for name in names if name in step), otherwise)


def _check_step(step: dict[str, Any]) -> None:
    known = {"do", "when", "as", "note", "provider", "options", "steps", *_MANY, *_TIMES, *_WORDS, *_OTHERS}
    if unknown := set(step) - known:
        raise UnknownWordError(f"{step['do']}: {sorted(unknown)}")


# -- many answers at once


async def churn(world: World, step: dict[str, Any]) -> None:
    """Many agents answer at the same time, again and again; most answers are cancelled at a random moment."""
    _check_step(step)
    chance = random.Random(_size(step, ("seed",), 11))
    if "provider" in step:
        world.bring_scripts(step["provider"])
    rounds = _size(step, _TIMES, 10)
    moments = step.get("cancel_after_ms", [0, 60])
    low, high = moments if isinstance(moments, list) else (moments, moments)
    until = anyio.current_time() + step["seconds"] if "seconds" in step else None
    if until is not None and not set(step) & set(_TIMES):
        rounds = 10_000  # as many as the time allows
    plan = _Plan(rounds, until, chance, low / 1000, high / 1000)
    async with anyio.create_task_group() as group:
        for number in range(_size(step, _MANY, 8)):
            if "steps" in step:
                group.start_soon(_player, world, rounds, step["steps"], number)
            else:
                group.start_soon(_caller, world, plan)


@attrs.frozen
class _Plan:
    """How long each caller goes on, and when it interrupts."""

    rounds: int
    until: float | None
    chance: random.Random
    low: float
    high: float

    def moment(self) -> float:
        return self.low + self.chance.random() * (self.high - self.low)


async def _player(world: World, rounds: int, steps: list[dict[str, Any]], number: int) -> None:
    """One of many agents, for each of which the steps are played again and again."""
    from case_steps import Host

    own = copy.copy(world)
    own.heard, own.log, own.facts, own.changed = {}, [], {}, anyio.Event()
    own.agent = world.new_agent()
    async with own.agent, anyio.create_task_group() as group:
        host = Host(own, native=False)
        host.random = random.Random(number)
        for _ in range(rounds):
            await host.play(steps, group)


async def _caller(world: World, plan: _Plan) -> None:
    async with world.new_agent() as agent:
        for _ in range(plan.rounds):
            if plan.until is not None and anyio.current_time() >= plan.until:
                break
            agent.add_user_message("Hello?")
            await _one_answer(world, agent, plan.moment())
        agent.add_user_message("Still there?")
        last = await _one_answer(world, agent, None)
        if last != "completed":
            world.problems.append(f"an answer after many cancels is {last}")


async def _one_answer(world: World, agent: Agent, cancel_after: float | None) -> str:
    answer = agent.answer()
    chunks: list[str] = []

    async def listen() -> None:
        async for chunk in answer:
            chunks.append(chunk)  # noqa: PERF401  # a comprehension would lose what came before a cancellation

    async with anyio.create_task_group() as group:
        group.start_soon(listen)
        if cancel_after is not None:
            await anyio.sleep(cancel_after)
            agent.cancel()
            before = len(chunks)
            await anyio.lowlevel.checkpoint()
            if len(chunks) != before:
                world.problems.append("a chunk after the cancel")
    result = await answer.wait()
    if "".join(chunks) != result.text:
        world.problems.append(f"heard {chunks}, told {result.text!r}")
    return str(result.status)


# -- random actions


async def fuzz(host: Host, step: dict[str, Any]) -> None:
    """Random actions at random moments; after each round what always holds is checked."""
    _check_step(step)
    words = next((step[name] for name in _WORDS if name in step), ["user", "answer", "cancel", "wait", "answer"])
    if step.get("cancel", True) is False:
        words = [word for word in words if word != "cancel"]
    rounds = _size(step, _TIMES, 25)
    for seed in range(rounds):
        chance = random.Random(seed)
        if "steps" in step:
            await host.play([_timeless(one) for one in chance.sample(step["steps"], len(step["steps"]))], host.group)
        else:
            for _ in range(chance.randint(1, 6)):
                await _random_action(host, chance.choice(words), chance)
        await host.idle()
        conversation = wire.dump(host.world.agent.conversation)
        if not calls_are_paired(conversation):
            host.world.problems.append(f"after round {seed}: a call without its result in {conversation}")


def _timeless(step: dict[str, Any]) -> dict[str, Any]:
    """The step without a moment that, in a random order, might never come."""
    kept = step.get("when", "").partition(":")[0] in {"after_ms", "random_chunk_or_ms"}
    return step if kept else {name: value for name, value in step.items() if name != "when"}


async def _random_action(host: Host, word: str, chance: random.Random) -> None:
    if word in {"wait", "wait_ms"}:
        await anyio.sleep(chance.random() * 0.05)
    elif word == "user":
        host.world.agent.add_user_message("And now?")
    else:
        await host.do({"do": word, "ms": 5})


# -- reading by hand, each time from a task of its own


async def _in_task(read: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async with anyio.create_task_group() as group:
        group.start_soon(read)


async def read_next(host: Host, step: dict[str, Any]) -> None:
    """Read one chunk, within a limit."""
    heard = host.current
    assert heard is not None
    ended = False

    async def read() -> None:
        nonlocal ended
        with anyio.move_on_after(step.get("with_timeout_ms", 1000) / 1000) as scope:
            try:
                heard.chunks.append(await heard.answer.receive())
            except anyio.EndOfStream:
                ended = heard.ended = True
        if scope.cancelled_caught is not step.get("times_out", False):
            host.world.problems.append(f"next timed out: {scope.cancelled_caught}")

    await _in_task(read)
    if ended is not step.get("ends", False):
        host.world.problems.append(f"next came to the end: {ended}")
    if "gets" in step and heard.chunks[-1:] != [step["gets"]]:
        host.world.problems.append(f"next got {heard.chunks[-1:]}")


async def read_rest(host: Host, step: dict[str, Any]) -> None:
    """Read what is left."""
    del step
    heard = host.current
    assert heard is not None
    await _in_task(lambda: host.world.consume(heard))


async def close_by_hand(host: Host, step: dict[str, Any]) -> None:
    """Close the answer."""
    del step
    heard = host.current
    assert heard is not None
    await _in_task(heard.answer.aclose)
    for _ in range(20):
        await anyio.lowlevel.checkpoint()
