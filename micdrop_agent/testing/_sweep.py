"""Cancels a scenario at every scheduling step, and checks every invariant after each run.

    cancel_everywhere(scenario)
      run 0        count the steps
      run k = 1…n  inject at step k, run to the end, check_invariants(trace)

A scenario is an async function of a ``Probe``. It opens an agent, calls ``probe.watch(agent)``, and uses it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import anyio
import anyio.lowlevel
import attrs

from micdrop_agent._core.core import core_of
from micdrop_agent._extras import install_command
from micdrop_agent.testing._disturbance import Disturbance
from micdrop_agent.testing._invariants import InvariantError, check_invariants
from micdrop_agent.testing._loop import DeadlockError
from micdrop_agent.testing._probe import END_WITHIN_S, Probe, Trace
from micdrop_agent.testing._virtual import BACKENDS, run_virtual
from micdrop_agent.testing._wreck import forget_the_wreck

if TYPE_CHECKING:
    from micdrop_agent._core.agent import Agent

logger: Final = logging.getLogger("micdrop_agent.testing")

Scenario: TypeAlias = Callable[[Probe], Awaitable[None]]
"""An async function of a ``Probe`` that opens an agent, has it watched, and uses it."""


@attrs.define(eq=False)
class _Run:
    """One run of a scenario with one injection."""

    probe: Probe
    scope: anyio.CancelScope | None = None
    task: asyncio.Task[Any] | None = None
    again: bool = False
    natively: int = 0
    """How often the host's task was cancelled natively while it was inside the scenario."""


def _open_agent(run: _Run) -> Agent | None:
    """The agent, while it is open: a closed one refuses some of this, by rule."""
    agent = run.probe.trace.agent
    return agent if agent is not None and core_of(agent).state == "open" else None


def _cancel(run: _Run) -> None:
    if run.probe.trace.agent is not None:
        run.probe.trace.agent.cancel()


def _pause(run: _Run) -> None:
    """Half of what was received was heard; a moment later the answer goes on."""
    agent, current = _open_agent(run), run.probe.current
    if agent is None or current is None:
        return
    agent.cancel(heard=len("".join(current.received)) // 2, pause=True)

    async def later() -> None:
        await anyio.sleep(0.07)
        if core_of(agent).state == "open" and current.answer.paused:
            agent.resume()

    core_of(agent).spawn(later, "the end of a pause")


def _heard(run: _Run) -> None:
    agent, current = _open_agent(run), run.probe.current
    if agent is not None and current is not None:
        agent.cancel(heard=len("".join(current.received)) // 2)


def _answer(run: _Run) -> None:
    agent = _open_agent(run)
    if agent is not None:
        agent.answer()


def _spawn(work: Callable[[], Awaitable[None]]) -> None:
    """Run ``work`` in a task of its own, from outside any task."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        import trio

        trio.lowlevel.spawn_system_task(work)
    else:
        _TASKS.add(task := loop.create_task(_ended(work)))
        task.add_done_callback(_TASKS.discard)


async def _ended(work: Callable[[], Awaitable[None]]) -> None:
    await work()


_TASKS: set[asyncio.Task[None]] = set()


def _aclose(run: _Run) -> None:
    if run.probe.trace.agent is not None:
        _spawn(run.probe.trace.agent.aclose)


def _close(run: _Run) -> None:
    if run.probe.current is not None:
        _spawn(run.probe.current.answer.aclose)


def _host_scope(run: _Run) -> None:
    if run.scope is not None:
        run.scope.cancel()


def _host_task(run: _Run) -> None:
    if run.task is not None:
        run.natively += run.task.cancel()


def _host_folded(run: _Run) -> None:
    """The host's deadline and a native cancellation in one step: asyncio makes a single error of the two."""
    _host_scope(run)
    _host_task(run)


def _host_folded_task_first(run: _Run) -> None:
    _host_task(run)
    _host_scope(run)


def _host_task_while_cutting(run: _Run) -> None:
    _cancel(run)
    _host_folded(run)


def _host_task_twice(run: _Run) -> None:
    _host_task(run)
    run.again = True


def _stop_reading(run: _Run) -> None:
    run.probe.stop_reading = True


INJECTIONS: Final[dict[str, Callable[[_Run], None]]] = {
    "cancel": _cancel,
    "cancel(heard)": _heard,
    "pause": _pause,
    "answer": _answer,
    "aclose": _aclose,
    "close answer": _close,
    "host scope": _host_scope,
    "task.cancel": _host_task,
    "task.cancel twice": _host_task_twice,
    "task.cancel + scope": _host_folded_task_first,
    "scope + task.cancel": _host_folded,
    "cancel + scope + task.cancel": _host_task_while_cutting,
    "stop reading": _stop_reading,
}
"""What can be injected, by name."""

NATIVE: Final = frozenset(name for name in INJECTIONS if "task.cancel" in name)
"""Injections that only asyncio has."""


@attrs.frozen
class SweepReport:
    """What a sweep covered."""

    points: int
    """Runs with an injection."""

    steps: dict[str, int]
    """Scheduling steps of the undisturbed run, per event loop."""


_SETTLE_STEPS: Final = 30
"""Steps in which a task that is on its way out may end."""


async def _play(scenario: Scenario, run: _Run) -> None:
    """Run ``scenario`` as a host would, in a scope of its own, and take down what is left."""
    trace = run.probe.trace
    before = len(anyio.get_running_tasks())
    native = asyncio.current_task() if _on_asyncio() else None
    run.task = native
    arrived = False
    try:
        with anyio.CancelScope() as run.scope:
            try:
                await scenario(run.probe)
            except Exception as error:  # noqa: BLE001  # it is judged by the invariants
                trace.error = error
            # A cancellation that came with the scenario's last step is delivered here.
            await anyio.lowlevel.checkpoint()
    except asyncio.CancelledError:  # noqa: ASYNC103 - the injected one ends here
        if native is None:
            raise
        arrived = True
    if native is not None:
        _check_arrival(run, native, arrived=arrived)
    run.task = run.scope = None
    for _ in range(_SETTLE_STEPS):
        await anyio.lowlevel.checkpoint()
        trace.tasks_left = len(anyio.get_running_tasks()) - before
        if not trace.tasks_left:
            break  # nothing is left that could do anything
    if trace.agent is not None:
        trace.final = list(trace.agent.conversation)


def _check_arrival(run: _Run, native: asyncio.Task[Any], *, arrived: bool) -> None:
    """Invariant 14: every native cancellation of the host reaches it, and its count is what the host asked for."""
    counted = native.cancelling()
    if run.natively and not arrived:
        run.probe.trace.broken(14, "a native cancellation of the host was swallowed")
    if counted != run.natively:
        run.probe.trace.broken(14, f"the host was cancelled {run.natively} times natively, its task counts {counted}")
    while native.cancelling():
        native.uncancel()


def _on_asyncio() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def run_scenario(
    scenario: Scenario,
    backend: str,
    *,
    inject: str | None = None,
    step: int = 0,
    listen: bool = True,
    end_within: float = END_WITHIN_S,
    **options: Any,
) -> Trace:
    """Run ``scenario`` once, with ``inject`` at scheduling step ``step``, and check every invariant.

    Args:
        scenario: An async function of a ``Probe``.
        backend: Where to run it.
        inject: A name of ``INJECTIONS``; ``None`` for an undisturbed run.
        step: The step after which it happens.
        listen: As for ``cancel_everywhere``.
        end_within: Likewise.
        **options: As for ``run_virtual``.

    Raises:
        InvariantError: An invariant does not hold; the message names it, the injection and the step.
    """
    run = _Run(Probe(listen=listen, end_within=end_within))

    def on_step(number: int) -> None:
        if run.scope is None:
            return  # before the scenario or after it
        if inject is not None and number == step:
            Disturbance.happened = True
            INJECTIONS[inject](run)
        elif run.again and number > step:
            run.again = False
            _host_task(run)
        run.probe.trace.steps = number
        run.probe.at_step()

    try:
        try:
            run_virtual(backend, _play, scenario, run, on_step=on_step, **options)
        except DeadlockError as error:
            raise InvariantError(11, f"the scenario never ended: {error}") from None
        finally:
            Disturbance.happened = False
        check_invariants(run.probe.trace)
    except InvariantError as error:
        raise error.at(backend, inject, step) from None
    return run.probe.trace


def _broken(scenario: Scenario, backend: str, inject: str, step: int, **options: Any) -> InvariantError | None:
    """The error of one point, without the frames that keep what its run has left."""
    try:
        run_scenario(scenario, backend, inject=inject, step=step, **options)
    except InvariantError as error:
        error.__context__ = None
        return error.with_traceback(None)
    return None


def cancel_everywhere(
    scenario: Scenario,
    *,
    inject: str | Iterable[str] = "cancel",
    backends: Iterable[str] = BACKENDS,
    every: int = 1,
    listen: bool = True,
    expect: str | Sequence[str] | None = None,
    end_within: float = END_WITHIN_S,
) -> SweepReport:
    """Run ``scenario`` once per scheduling step and event loop, with an injection there.

    Args:
        scenario: An async function of a ``Probe``.
        inject: One or more names of ``INJECTIONS``.
        backends: Event loops to run on.
        every: Take only each ``every``-th step, for long scenarios.
        listen: Listen to every event of the agent. An agent that nobody listens to makes no events, and
            the message of a barge-in only when somebody looks: with ``False`` that is swept, by
            what its consumers received and what its conversation is at the end.
        expect: What the consumer must have received when nothing was injected: the text of all answers, or one
            text for each. It is how a chunk that your own agent doubles or loses is noticed.
        end_within: Virtual seconds in which the task of an answer must have ended after its cancellation, with all
            its clean-up; ``math.inf`` looks at nothing of how it ends.

    Raises:
        InvariantError: An invariant does not hold; the message names it, the injection and the step.
    """
    points = 0
    steps: dict[str, int] = {}
    if backends is BACKENDS and "trio" not in BACKENDS:
        logger.warning("Trio is not installed, so the sweep runs on asyncio alone; run: %s", install_command("trio"))
    for backend in backends:
        quiet = run_scenario(scenario, backend, listen=listen, end_within=end_within)
        _check_expected(quiet, expect, backend)
        steps[backend] = quiet.steps
        for name in [inject] if isinstance(inject, str) else inject:
            if name in NATIVE and backend == "trio":
                continue
            # Code that swallows its cancellation spins; nothing else takes so many steps more.
            limit = 20 * steps[backend] + 2000
            for step in range(1, steps[backend] + 1, every):
                broken = _broken(scenario, backend, name, step, max_steps=limit, listen=listen, end_within=end_within)
                if broken is not None:
                    forget_the_wreck()
                    raise broken
                points += 1
    return SweepReport(points, steps)


def _check_expected(trace: Trace, expect: str | Sequence[str] | None, backend: str) -> None:
    """Compare what an undisturbed run said with what it must say."""
    received = ["".join(answer.received) for answer in trace.answers]
    seen: object = "".join(received) if isinstance(expect, str) else received
    wanted: object = expect if isinstance(expect, str) else list(expect or ())
    if expect is not None and seen != wanted:
        raise InvariantError(4, f"the consumer received {seen!r}, and {wanted!r} was expected").at(backend, None, 0)


async def read(probe: Probe, answer: Any) -> None:
    """Read ``answer`` to its end, or until ``"stop reading"`` is injected; its failure is not the reader's."""
    try:
        async for _ in answer:
            if probe.stop_reading:
                return
    except Exception:  # noqa: BLE001, S110  # the trace has it as AnswerFailed
        pass


def talk_to(make: Callable[[], Agent], *questions: str) -> Scenario:
    """The scenario of a plain call: ask, read the answer to its end, ask the next.

    Args:
        make: Makes the agent; called once for each run.
        *questions: What the caller says; without any, two questions.
    """

    async def scenario(probe: Probe) -> None:
        async with make() as agent:
            probe.watch(agent)
            for question in questions or ("Hello?", "And then?"):
                if core_of(agent).state == "open":  # it may be closed from outside
                    agent.add_user_message(question)
                    await read(probe, agent.answer())

    return scenario
