"""Does something to a call at every scheduling step, and checks its invariants after each run.

    sweep_call(scenario, inject=["barge in", "hang up"])

A scenario is an async function of a ``CallRun``: it opens an agent, makes a call, and plays the client.
"""

# The kit looks inside on purpose.
# pyright: reportPrivateUsage=false

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import anyio
import anyio.lowlevel
import attrs

from micdrop_agent.testing._call_probe import CallInvariantError, CallProbe, check_call
from micdrop_agent.testing._loop import DeadlockError
from micdrop_agent.testing._sweep import NATIVE, SweepReport, _on_asyncio
from micdrop_agent.testing._virtual import BACKENDS, run_virtual
from micdrop_agent.testing._wreck import forget_the_wreck

if TYPE_CHECKING:
    from collections.abc import Iterable

    from micdrop_agent.call import Call
    from micdrop_agent.testing._call import MemoryClient, ScriptedTTS

__all__ = ["CALL_INJECTIONS", "CallRun", "CallScenario", "run_call", "sweep_call"]


@attrs.define(eq=False)
class CallRun:
    """One run of a scenario."""

    probe: CallProbe = attrs.field(factory=CallProbe)
    call: Call | None = None
    client: MemoryClient | None = None
    scope: anyio.CancelScope | None = None
    task: asyncio.Task[Any] | None = None
    steps: int = 0
    tasks_left: int = 0
    error: BaseException | None = None

    async def play(
        self, call: Call, client: MemoryClient, *voices: ScriptedTTS, act: Callable[[], Awaitable[None]]
    ) -> None:
        """Run ``call`` while ``act()`` plays the client, who hangs up afterwards."""
        self.call, self.client = call, client
        self.probe.watch(call, client, *voices)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._run, call)
            try:
                await act()
            except AssertionError:
                if client.closed is None:
                    raise
            client.close()

    async def _run(self, call: Call) -> None:
        try:
            await call.run()
        finally:
            self.probe.over()
            if self.client is not None:
                self.client.close()


CallScenario: TypeAlias = Callable[[CallRun], Awaitable[None]]
"""An async function of a ``CallRun`` that opens an agent, makes a call, and plays the client."""


def _client(do: Callable[[MemoryClient], object]) -> Callable[[CallRun], None]:
    def inject(run: CallRun) -> None:
        if run.client is not None:
            do(run.client)

    return inject


def _call(do: Callable[[Call], object]) -> Callable[[CallRun], None]:
    def inject(run: CallRun) -> None:
        if run.call is not None and run.call._session is not None and not run.call._session.closed:
            do(run.call)

    return inject


def _agent_cancel(call: Call) -> None:
    if call.options.agent is not None:
        call.options.agent.cancel()


def _host_scope(run: CallRun) -> None:
    if run.scope is not None:
        run.scope.cancel()


def _host_task(run: CallRun) -> None:
    if run.task is not None:
        run.task.cancel()


def _noise(client: MemoryClient) -> None:
    for frame in ("", "StartSpeaking ", "{", b"\x00", b"Mut", bytes(7), "Stop"):
        client.put(frame)


CALL_INJECTIONS: Final[dict[str, Callable[[CallRun], None]]] = {
    "agent.cancel": _call(_agent_cancel),
    "answer": _call(lambda call: call.answer()),
    "barge in": _client(lambda client: client.put("StartSpeaking")),
    "hang up": _client(lambda client: client.close()),
    "host scope": _host_scope,
    "interrupt": _call(lambda call: call.interrupt()),
    "noise": _client(_noise),
    "pause": _client(lambda client: client.put("Mute")),
    "speak": _client(lambda client: client.speak()),
    "stop": _call(lambda call: call.stop()),
    "stop speaking": _client(lambda client: client.put("StopSpeaking")),
    "task.cancel": _host_task,
}
"""What can be injected, by name."""


async def _play(scenario: CallScenario, run: CallRun) -> None:
    before = len(anyio.get_running_tasks())
    native = asyncio.current_task() if _on_asyncio() else None
    run.task = native
    try:
        with anyio.CancelScope() as run.scope:
            try:
                await scenario(run)
            except Exception as error:  # noqa: BLE001  # it is judged below
                run.error = error
            await anyio.lowlevel.checkpoint()
    except asyncio.CancelledError:  # noqa: ASYNC103 - the injected one ends here
        if native is None:
            raise
        while native.cancelling():
            native.uncancel()
    run.task = run.scope = None
    for _ in range(30):
        await anyio.lowlevel.checkpoint()
    run.tasks_left = len(anyio.get_running_tasks()) - before


def run_call(
    scenario: CallScenario, backend: str, *, inject: str | None = None, step: int = 0, **options: Any
) -> CallRun:
    """Run ``scenario`` once, with ``inject`` at scheduling step ``step``, and check every invariant.

    Raises:
        CallInvariantError: One does not hold; the message names it, the injection and the step.
    """
    run = CallRun()

    def on_step(number: int) -> None:
        if run.scope is None:
            return
        run.steps = number
        if inject is not None and number == step:
            CALL_INJECTIONS[inject](run)

    try:
        try:
            run_virtual(backend, _play, scenario, run, on_step=on_step, **options)
        except DeadlockError as error:
            raise CallInvariantError("C5", f"the call never ended: {error}") from None
        _check_end(run)
    except CallInvariantError as error:
        raise error.at(backend, inject or "nothing", step) from None
    return run


def _check_end(run: CallRun) -> None:
    if run.tasks_left:
        raise CallInvariantError("C5", f"{run.tasks_left} tasks are left")
    if run.error is not None:
        raise CallInvariantError("C6", f"the call ended with {run.error!r}")
    check_call(run.probe)


def sweep_call(
    scenario: CallScenario,
    *,
    inject: str | Iterable[str],
    backends: Iterable[str] = BACKENDS,
    every: int = 1,
) -> SweepReport:
    """Run ``scenario`` once per scheduling step and event loop, with an injection there.

    Args:
        scenario: An async function of a ``CallRun``.
        inject: One or more names of ``CALL_INJECTIONS``.
        backends: Event loops to run on.
        every: Take only each ``every``-th step, for long scenarios.

    Raises:
        CallInvariantError: An invariant does not hold; the message names it, the injection and the step.
    """
    points = 0
    steps: dict[str, int] = {}
    for backend in backends:
        steps[backend] = run_call(scenario, backend).steps
        for name in [inject] if isinstance(inject, str) else inject:
            if name in NATIVE and backend == "trio":
                continue
            limit = 20 * steps[backend] + 2000
            for step in range(1, steps[backend] + 1, every):
                try:
                    run_call(scenario, backend, inject=name, step=step, max_steps=limit)
                except CallInvariantError as error:
                    forget_the_wreck()
                    raise error.with_traceback(None) from None
                points += 1
    return SweepReport(points, steps)
