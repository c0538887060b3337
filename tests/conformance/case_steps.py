"""Groups C and D: what the host application does, step by step, and when."""

from __future__ import annotations

import asyncio
import gc
import random
import re
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel

from case_agents import UnknownWordError, check_known
from case_storm import SIZED, churn, close_by_hand, fuzz, read_next, read_rest
from case_tools import EVENT_OF, act_now
from case_when import Trigger
from micdrop_agent.events import EVENT_TYPES

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from anyio.abc import TaskGroup

    from case_world import Heard, World

_STEP = frozenset(
    [
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
        "gets",
        "ends",
        "steps",
        "event",
        "role",
        "raises",
        "records",
        "calls",
        "heard",
        "name",
        "tool",
        "note",
        "after_ms",
        "buffer",
        "error",
    ]
)

_CONSUME = re.compile(
    r"|(?:break|raise) after (?P<stop>\d+)|slow:? ?(?P<slow>\d+) ?ms(?: per chunk)?|never(?: enter| read| start)?"
    r"|(?P<then>\d+) then (?P<what>idle|close)"
)

HOST_ERRORS: dict[str, type[Exception]] = {"RuntimeError": RuntimeError, "ValueError": ValueError, "KeyError": KeyError}
"""What a host or a listener may raise."""


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
        self._closing: set[str] = set()
        self.random = random.Random(7)  # repeatable moments

    async def play(self, steps: list[dict[str, Any]], group: TaskGroup) -> None:
        self.group = group
        for place, step in enumerate(steps):
            if step["do"] not in SIZED:
                check_known(step, _STEP, "step")
            following = steps[place + 1] if place + 1 < len(steps) else {}
            if self.world.raises is not None:
                return
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
                await self._async_action(name, {**step, "ms": int(argument)} if argument.isdigit() else step)

    def _sync_action(self, name: str, argument: str, step: dict[str, Any]) -> Callable[[], object] | None:
        agent = self.world.agent
        actions: dict[str, Callable[[], object]] = {
            "user": lambda: agent.add_user_message(argument or step["text"]),
            "cancel": lambda: self._cancel(step),
            "answer": lambda: self._answer({**step, "as": argument} if argument else step),
            "task.cancel": self._cancel_task,
            "listen": lambda: self._listen(step),
            "add_tool": lambda: self._add_tool(argument, step),
            "remove_tool": lambda: agent.remove_tool(argument or step["name"]),
            "gc": gc.collect,
            "host_raises": lambda: self._raise(argument, step),
        }
        return actions.get(name)

    async def _async_action(self, name: str, step: dict[str, Any]) -> None:
        actions: dict[str, Callable[[dict[str, Any]], Awaitable[None]]] = {
            "destroy": self._destroy,
            "wait_ms": self._wait,
            "wait_idle": self._wait_idle,
            "next": partial(read_next, self),
            "read_rest": partial(read_rest, self),
            "close": partial(close_by_hand, self),
            "repeat": self._repeat,
            "churn": partial(churn, self.world),
            "fuzz": partial(fuzz, self),
        }
        if name not in actions:
            raise UnknownWordError(f"do {name!r}")
        await actions[name](step)

    def _add_tool(self, name: str, step: dict[str, Any]) -> None:
        tool = step.get("tool", {})
        spec = {} if isinstance(tool, str) else dict(tool)
        name = name or spec.pop("name", "") or (tool if isinstance(tool, str) else step["name"])
        try:
            self.world.agent.add_tool(self.world.toolbox.special(name, spec))
        except (ValueError, TypeError) as error:
            if not step.get("expect_error"):
                raise
            self.world.facts["expected_error"] = error
            return
        if step.get("expect_error"):
            self.world.problems.append("add_tool() should have raised")

    def _raise(self, name: str, step: dict[str, Any]) -> None:
        """The host's own block raises: nothing more is done in it."""
        named = name or str(step.get("raises", step.get("error", "RuntimeError")))
        if named not in HOST_ERRORS:
            raise UnknownWordError(f"host_raises {named!r}")
        self.world.raises = HOST_ERRORS[named]("the host failed")

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
            world.bring_scripts(step["provider"])
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
        known = _CONSUME.fullmatch(how)
        if known is None:
            raise UnknownWordError(f"consume {how!r}")
        if (how and known["slow"] is None) or _named_task(step):
            self.world.facts.setdefault("left", []).append(heard.name)
        if how.startswith("never") or _named_task(step):
            return
        if known["slow"] is not None:
            self.world.slow[heard.name] = int(known["slow"]) / 1000
        stop_after = int(known["stop"] or known["then"] or 0) or None
        if known["what"] == "close":
            self._closing.add(heard.name)
        fail = how.startswith("raise")
        if self.native:
            self.task = asyncio.get_running_loop().create_task(self._run_consumer(heard, stop_after, fail))
            self.world.facts.setdefault("tasks", []).append(self.task)
        else:
            self.group.start_soon(self._run_consumer, heard, stop_after, fail)

    async def _run_consumer(self, heard: Heard, stop_after: int | None, fail: bool) -> None:
        with anyio.CancelScope() as self.consuming:
            try:
                if fail:
                    async with heard.answer:
                        await self.world.consume(heard, stop_after=stop_after)
                        _fail()
                await self.world.consume(heard, stop_after=stop_after)
                if heard.name in self._closing:
                    await heard.answer.aclose()
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
        kinds = {**EVENT_OF, "*": None}
        if step["event"] not in kinds:
            raise UnknownWordError(f"listen to {step['event']!r}")
        world = self.world

        def hear(event: Any) -> None:
            if "role" in step and getattr(getattr(event, "message", None), "role", None) != step["role"]:
                return
            if "raises" in step:
                raise HOST_ERRORS.get(step["raises"], RuntimeError)("listener failed")
            if "calls" in step:
                for call in [step["calls"]] if isinstance(step["calls"], str) else step["calls"]:
                    act_now(world.agent, call)
            else:
                world.records.append(event)

        for kind in EVENT_TYPES if step["event"] == "*" else [EVENT_OF[step["event"]]]:
            world.agent.on(kind, hear)

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


def _fail() -> None:
    raise LookupError("the host's own error")


def _named_task(step: dict[str, Any]) -> bool:
    """``in: task A`` only makes the answer: others will read it."""
    return "in" in step


def _by_hand(step: dict[str, Any]) -> bool:
    return step.get("do") in ("next", "read_rest", "close")  # it may be a list
