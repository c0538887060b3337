"""Groups C and D: when a step happens, relative to the answer that runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel

from case_agents import UnknownWordError

if TYPE_CHECKING:
    from collections.abc import Callable

    from case_steps import Host
    from case_world import Heard


class Trigger:
    """Waits for the moment of one step, and lets the host act."""

    def __init__(self, host: Host, step: dict[str, Any]) -> None:
        self.host = host
        self.step = step
        self.world = host.world
        self.word, _, self.argument = step["when"].partition(":")

    async def act(self) -> None:
        wait = getattr(self, f"_{self.word}", None)
        if wait is None:
            raise UnknownWordError(f"trigger {self.step['when']!r}")
        await wait()

    async def _do(self) -> None:
        if pause := self.step.get("after_ms"):
            await anyio.sleep(pause / 1000)
        await self.host.do(self.step)

    async def _after_ms(self) -> None:
        await anyio.sleep(float(self.argument) / 1000)
        await self._do()

    async def _tool_started(self) -> None:
        toolbox = self.world.toolbox
        await self._until_tool(lambda: toolbox.count(self.argument) > 0 if self.argument else bool(toolbox.runs))

    async def _tool_returned(self) -> None:
        toolbox = self.world.toolbox
        await self._until_tool(lambda: self.argument in toolbox.returned if self.argument else bool(toolbox.returned))

    async def _until_tool(self, ready: Callable[[], bool]) -> None:
        with anyio.fail_after(60):
            while not ready():
                await self.world.toolbox.changed.wait()
        await self._do()

    async def _retry_wait(self) -> None:
        await self._request_over()
        await anyio.sleep(0.001)
        await self._do()

    async def _switching(self) -> None:
        await self._request_over()
        await self._do()

    async def _request_over(self) -> None:
        provider = self.world.provider
        await provider.until(lambda: any(request.finished for request in provider.requests))

    async def _in_cleanup(self) -> None:
        for _ in range(self.world.settings.get("cleanup_steps", 0)):
            await anyio.lowlevel.checkpoint()
        await self._do()

    async def _before_status(self) -> None:
        await self.world.until(lambda: any(entry[0] == "request" for entry in self.world.log), "a request")
        await self._do()

    async def _chunk(self) -> None:
        """Act in the consumer, right after it received that chunk."""
        number, target = int(self.argument), self.host.current
        acted = anyio.Event()

        async def on_chunk(heard: Heard) -> None:
            if heard is target and len(heard.chunks) == number:
                await self._do()
                acted.set()

        if target is not None and len(target.chunks) >= number:
            await self._do()
            return
        self.world.on_chunk = on_chunk  # type: ignore[method-assign]
        with anyio.fail_after(60):
            await acted.wait()

    async def _random_chunk_or_ms(self) -> None:
        chance = self.host.random
        if chance.random() < 0.5:
            await anyio.sleep(chance.random() * 0.03)
            await self._do()
        elif self.host.current is not None:
            heard, wanted = self.host.current, chance.randint(1, 2)
            await self.world.until(lambda: len(heard.chunks) >= wanted or heard.ended, "a chunk")
            await self._do()
