"""Groups C and D: what the host application does, step by step, and when."""

from __future__ import annotations

import asyncio
import gc
import random
import time
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel

from case_agents import UnknownWordError, check_known
from case_when import Trigger
from case_world import settle
from micdrop_agent.events import MessageAdded

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from anyio.abc import TaskGroup

    from case_world import Heard, World

_STEP = frozenset(
    {
        "do",
        "when",
        "as",
        "text",
        "same_tick",
        "consume",
        "provider",
        "options",
        "expect_error",
        "ms",
        "in",
        "times",
        "with_timeout_ms",
        "times_out",
        "steps",
        "event",
        "raises",
        "records",
        "heard",
        "name",
    }
)


class Host:
    """Plays the steps of a scenario against a world.

    Args:
        world: Where everything is seen.
        native: The host is plain asyncio code, which cancels tasks with ``task.cancel()``.
    """

    def __init__(self, world: World, *, native: bool) -> None:
        self.world = world
        self.native = native
        self.current: Heard | None = None
        self.consuming: anyio.CancelScope | None = None
        self.task: asyncio.Task[Any] | None = None
        self._answers = 0
        self.random = random.Random(7)  # repeatable moments

    async def play(self, steps: list[dict[str, Any]], group: TaskGroup) -> None:
        self.group = group
        for place, step in enumerate(steps):
            check_known(step, _STEP, "step")
            following = steps[place + 1] if place + 1 < len(steps) else {}
            if "when" in step:
                await Trigger(self, step).act()
            else:
                await self.do(step)
            if "when" not in following and not _by_hand(following):
                await self.idle()

    async def idle(self) -> None:
        """Wait until no answer is being consumed or generated."""
        world = self.world

        def quiet() -> bool:
            return all(heard.ended for heard in world.heard.values() if heard.name not in self._left)

        await world.until(quiet, "the end of an answer")

    @property
    def _left(self) -> set[str]:
        return set(self.world.facts.setdefault("left", []))

    # -- actions

    async def do(self, step: dict[str, Any]) -> None:
        words = step["do"] if isinstance(step["do"], list) else [step["do"]]
        for word in words:
            name, _, argument = word.partition(":")
            action = self._sync_action(name, argument, step)
            if action is not None:
                action()
            else:
                await self._async_action(name, step)

    def _sync_action(self, name: str, argument: str, step: dict[str, Any]) -> Callable[[], object] | None:
        agent = self.world.agent
        match name:
            case "user":
                return lambda: agent.add_user_message(argument or step["text"])
            case "cancel":
                return lambda: self._cancel(step)
            case "answer":
                return lambda: self._answer(step)
            case "task.cancel":
                return self._cancel_task
            case "listen":
                return lambda: self._listen(step)
            case "add_tool":
                return lambda: agent.add_tool(self.world.toolbox.special(step["name"], {}))
            case "gc":
                return gc.collect
        return None

    async def _async_action(self, name: str, step: dict[str, Any]) -> None:
        actions: dict[str, Callable[[dict[str, Any]], Awaitable[None]]] = {
            "destroy": self._destroy,
            "wait_ms": self._wait,
            "wait_idle": self._wait_idle,
            "next": self._next,
            "read_rest": self._read_rest,
            "close": self._close,
            "repeat": self._repeat,
        }
        if name not in actions:
            raise UnknownWordError(f"do {name!r}")
        await actions[name](step)

    def _cancel(self, step: dict[str, Any]) -> None:
        begin = time.perf_counter()
        self.world.agent.cancel(heard=step.get("heard", self.world.settings.get("heard")))
        self.world.facts["cancel_s"] = time.perf_counter() - begin
        self.world.facts["cancelled_at"] = anyio.current_time()
        self.world.facts["requests_at_cancel"] = len(self.world.provider.requests)
        self.world.note("cancelled")

    def _answer(self, step: dict[str, Any]) -> None:
        world = self.world
        self._answers += 1
        name = step.get("as", f"a{self._answers}")
        if "provider" in step:
            # Mostly the parts of one response; a list of lists is one list per request.
            script = step["provider"]
            world.own_scripts = script if isinstance(script[0], list) else [script]
            world.own_from = len(world.provider.requests)
        try:
            heard = self.current = world.start(name)
        except RuntimeError as error:
            if not step.get("expect_error"):
                raise
            world.facts["expected_error"] = error
            return
        if step.get("expect_error"):
            world.problems.append("answer() should have raised")
        self._consume(heard, step)

    def _consume(self, heard: Heard, step: dict[str, Any]) -> None:
        how = step.get("consume", "")
        if how == "never enter" or _named_task(step):
            self.world.facts.setdefault("left", []).append(heard.name)
            return
        if how not in {"", "break after 1", "raise after 1"}:
            raise UnknownWordError(f"consume {how!r}")
        if how:
            self.world.facts.setdefault("left", []).append(heard.name)
        if self.native:
            self.task = asyncio.get_running_loop().create_task(self._run_consumer(heard, how))
            self.world.facts.setdefault("tasks", []).append(self.task)
        else:
            self.group.start_soon(self._run_consumer, heard, how)

    async def _run_consumer(self, heard: Heard, how: str) -> None:
        with anyio.CancelScope() as self.consuming:
            try:
                if how == "raise after 1":
                    async with heard.answer:
                        await self.world.consume(heard, stop_after=1)
                        _fail()
                await self.world.consume(heard, stop_after=1 if how else None)
                if self.world.settings.get("linger"):
                    # The host is in our clean-up when it is cancelled itself, and must notice.
                    await heard.answer.aclose()
                    await anyio.sleep_forever()
            except LookupError as error:
                if "the host's own error" not in str(error):
                    raise
            except (asyncio.CancelledError, anyio.get_cancelled_exc_class()):
                self.world.facts["host_task"] = "cancelled"
                raise

    def _cancel_task(self) -> None:
        if self.native:
            assert self.task is not None
            self.task.cancel()
        elif self.consuming is not None:
            self.consuming.cancel()

    def _listen(self, step: dict[str, Any]) -> None:
        if step["event"] != "Message":
            raise UnknownWordError(f"listen to {step['event']!r}")
        if "raises" in step:
            errors = {"RuntimeError": RuntimeError, "ValueError": ValueError}

            def fail(event: MessageAdded) -> None:
                raise errors[step["raises"]]("listener failed")

            self.world.agent.on(MessageAdded, fail)
        else:
            self.world.agent.on(MessageAdded, self.world.records.append)

    async def _destroy(self, step: dict[str, Any]) -> None:
        begin = anyio.current_time()
        await self.world.agent.aclose()
        self.world.facts["destroy_s"] = anyio.current_time() - begin
        self.world.facts["log_at_destroy"] = len(self.world.log)

    async def _wait(self, step: dict[str, Any]) -> None:
        await anyio.sleep(step["ms"] / 1000)

    async def _wait_idle(self, step: dict[str, Any]) -> None:
        await self.idle()

    async def _repeat(self, step: dict[str, Any]) -> None:
        for _ in range(step["times"]):
            await self.play(step["steps"], self.group)

    # -- reading by hand, from a task of its own

    async def _in_task(self, read: Callable[[], Coroutine[Any, Any, None]]) -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(read)

    async def _next(self, step: dict[str, Any]) -> None:
        heard = self.current
        assert heard is not None

        async def read() -> None:
            with anyio.move_on_after(step.get("with_timeout_ms", 1000) / 1000) as scope:
                heard.chunks.append(await heard.answer.receive())
            if scope.cancelled_caught is not step.get("times_out", False):
                self.world.problems.append(f"next timed out: {scope.cancelled_caught}")

        await self._in_task(read)

    async def _read_rest(self, step: dict[str, Any]) -> None:
        heard = self.current
        assert heard is not None
        await self._in_task(lambda: self.world.consume(heard))

    async def _close(self, step: dict[str, Any]) -> None:
        heard = self.current
        assert heard is not None
        await self._in_task(heard.answer.aclose)
        await settle()


def _fail() -> None:
    raise LookupError("the host's own error")


def _named_task(step: dict[str, Any]) -> bool:
    """``in: task A`` only makes the answer: others will read it."""
    return "in" in step


def _by_hand(step: dict[str, Any]) -> bool:
    return step.get("do") in ("next", "read_rest", "close")  # it may be a list
