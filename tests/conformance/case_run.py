"""Groups C and D: one run of one scenario, in virtual time, and the resources that are left after it."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import io
import warnings
from typing import TYPE_CHECKING, Any

import anyio

from case_agents import UnknownWordError, check_known
from case_expect import check
from case_steps import Host
from case_variants import Way, ways
from case_world import World, settle
from micdrop_agent import wire
from micdrop_agent.testing import run_virtual

if TYPE_CHECKING:
    from types import ModuleType

    from micdrop_agent.testing import Backend

SCENARIO = {"provider", "steps", "expect", "backends", "options", "tools", "after", "protocol", "note", "open_question"}


def run_way(way: Way, backend: Backend, strict: ModuleType) -> list[str]:
    """Play one way of a scenario; what is wrong."""
    check_known(way.scenario, SCENARIO, "scenario")
    if keys := way.scenario["expect"].get("backends_equal"):
        chosen = keys if isinstance(keys, list) else ["conversation", "events"]
        problems = compare_backends({way.name: way.scenario}, chosen)
        if problems:
            return problems
    words = {step["do"] for step in way.scenario["steps"] if isinstance(step["do"], str)}
    if "run" in words:
        return _run_in_loops(way, backend, strict)
    if "in_cleanup" in [step.get("when") for step in way.scenario["steps"]]:
        problems = []
        for steps in range(8):
            way.settings["cleanup_steps"] = steps
            problems += [f"after {steps} steps: {problem}" for problem in _one(way, backend, strict)]
        return problems
    times = way.expect.get("repeat", 1)
    return [problem for _ in range(times) for problem in _one(way, backend, strict)]


def observe(way: Way, backend: Backend) -> World:
    """Play one way of a scenario; what was seen."""
    world = World(way.scenario, way.settings)
    with warnings.catch_warnings(record=True) as caught, contextlib.redirect_stderr(io.StringIO()) as stderr:
        warnings.simplefilter("always")
        run_virtual(backend, _play, world, backend == "asyncio-native")
        if {"warnings", "stderr"} & set(way.scenario["expect"]):
            gc.collect()
    world.facts["warnings"] = [str(warning.message) for warning in caught]
    world.facts["stderr"] = stderr.getvalue()
    return world


def _one(way: Way, backend: Backend, strict: ModuleType) -> list[str]:
    world = observe(way, backend)
    problems = check(world, way.expect, strict, backend)
    if way.alternatives:
        found = [check(world, {**way.expect, **expect}, strict, backend) for expect in way.alternatives.values()]
        return problems if [] in found else found[0]
    return problems


def _tasks(native: bool) -> int:
    if native:
        return len(asyncio.all_tasks())
    return len(anyio.get_running_tasks())


async def _play(world: World, native: bool) -> None:
    async with world.make_provider() as provider:
        tasks = _tasks(native)
        agent = world.make_agent()
        if "bug" in world.settings:
            _break_request(world)
        begin = anyio.current_time()
        try:
            async with agent:
                host = Host(world, native=native)
                async with anyio.create_task_group() as group:
                    await host.play(world.scenario["steps"], group)
                    world.facts["took"] = anyio.current_time() - begin
                    world.facts["active"] = getattr(agent, "active_name", None)
                    world.look(provider)
                    for task in world.facts.get("tasks", ()):
                        if not world.settings.get("linger"):
                            task.cancel()
                    await settle()
                    group.cancel_scope.cancel()
                _raise(world.raises)
        except Exception as error:
            if world.raises is None:
                raise
            world.errors.append(error)  # what left the block is compared
        world.facts["conversation"] = wire.dump(agent.conversation)
        await settle()
        if native:
            await _collect(world)
        world.facts["tasks_left"] = _tasks(native) - tasks
        world.look(provider, "connections_left")


def _raise(error: Exception | None) -> None:
    """The host's own block raises, if it does."""
    if error is not None:
        raise error


async def _collect(world: World) -> None:
    """The tasks of a native host: let them end, and cancel the ones that only linger."""
    for task in world.facts.get("tasks", ()):
        if not task.done():
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError, Exception):
            await task


def _break_request(world: World) -> None:
    core: Any = world.agent._core

    class Broken(type(core)):  # type: ignore[misc]  # whichever core this agent has
        __slots__ = ()

        def items(self, turn: Any) -> Any:
            world.facts["bugs"] = world.facts.get("bugs", 0) + 1
            raise world.settings["bug"]

    core.__class__ = Broken


# -- one agent, several event loops


def _run_in_loops(way: Way, backend: Backend, strict: ModuleType) -> list[str]:
    problems: list[str] = []
    world: World | None = None
    for step in way.scenario["steps"]:
        check_known(step, {"do", "steps", "same_agent", "fresh_agent", "expect_error"}, "run")
        if step.get("same_agent"):
            assert world is not None
            problems += _reused(world, backend, step)
            continue
        inner = {**way.scenario, "steps": step["steps"]}
        world = observe(Way(way.name, inner, {}, {**way.settings}), backend)
        problems += check(world, {"outcome": "answered", **way.expect}, strict, backend)
    return problems


def _reused(world: World, backend: Backend, step: dict[str, Any]) -> list[str]:
    if step.get("expect_error") != "clear":
        raise UnknownWordError("a second loop without expect_error: clear")
    problems: list[str] = []

    async def again() -> None:
        try:
            async with world.agent:
                problems.append("the agent could be opened in a second loop")
        except RuntimeError as error:
            if not str(error):
                problems.append("the error of a second loop says nothing")
        try:
            world.agent.answer()
            problems.append("answer() worked in a second loop")
        except RuntimeError:
            pass

    run_virtual(backend, again)
    return problems


def compare_backends(scenarios: dict[str, dict[str, Any]], equal: list[str]) -> list[str]:
    """Play every scenario on every backend it lists; what differs."""
    known = {"conversation", "events", "tasks_left", "connections_left"}
    if set(equal) - known:
        raise UnknownWordError(f"equal_across {sorted(set(equal) - known)}")
    problems = []
    for name, scenario in scenarios.items():
        first = ways(scenario)[0]
        if {step["do"] for step in scenario["steps"] if isinstance(step["do"], str)} & {"run", "run_all", "repeat"}:
            continue
        seen = {}
        for backend in scenario["backends"]:
            world = observe(first, backend)
            events = [entry for entry in world.log if entry[0] == "event"]
            facts = {**world.facts, "events": events}
            seen[backend] = {key: facts.get(key) for key in equal}
        values = list(seen.values())
        if any(value != values[0] for value in values):
            problems.append(f"{name}: {seen}")
    return problems
