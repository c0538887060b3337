"""The original browser client without a browser: it speaks, listens, interrupts, and comes back when it is cut off.

python client.py ws://127.0.0.1:8080/call/anna "order 1" "order 2"
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import TYPE_CHECKING, Any, Final

from stand_ins import frame_of, word_of
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

RECONNECT: Final = 1.0
"""Seconds before it connects again, as the original does."""


class Caller:
    """One caller, whose call outlives its connections.

    Args:
        url: The call.
        reconnect: Seconds before it connects again.
        on_lost: Awaited when the connection is gone, before that.
    """

    def __init__(
        self,
        url: str,
        *,
        reconnect: float = RECONNECT,
        on_lost: Callable[[Caller], Awaitable[None]] | None = None,
    ) -> None:
        self.url = url
        self.items: list[dict[str, Any]] = []
        """The messages that it was sent."""
        self.heard: list[str] = []
        """What it heard, and said: ``"< text"`` for each word heard, ``"> text"`` for what the server understood."""
        self.heard_at: list[float] = []
        self.closes: list[int | None] = []
        """How each connection ended."""
        self.waiting = True
        self.speaking = False
        self.connections = 0
        self.first_audio: list[float] = []
        """Seconds from the end of what was said to the first audio."""
        self._stopped_at: float | None = None
        self._reconnect = reconnect
        self._on_lost = on_lost
        self._connection: ClientConnection | None = None
        self._changed = asyncio.Event()
        self._done = False

    async def run(self) -> None:
        """Stay connected until ``hang_up()``."""
        while not self._done:
            connection: ClientConnection | None = None
            try:
                async with connect(self.url, open_timeout=5, ping_interval=None, proxy=None) as connection:
                    self.connections += 1
                    self._connection, self.waiting, self._stopped_at = connection, True, None
                    self._tell()
                    async for frame in connection:
                        self._receive(frame)
            except (OSError, ConnectionClosed, InvalidStatus, TimeoutError, EOFError):
                pass
            self._gone()
            if connection is not None:
                self.closes.append(connection.close_code)
                if self._on_lost is not None and not self._done:
                    await self._on_lost(self)
            if not self._done:
                await asyncio.sleep(self._reconnect)

    async def say(self, text: str) -> bool:
        """Speak, which interrupts whatever is being said; ``False`` if the connection went away."""
        try:
            connection = self._connection
            if connection is None:
                return False
            self.speaking = True
            await connection.send("StartSpeaking")
            for word in text.split():
                await asyncio.sleep(0.15)  # what was on its way when it began to speak is dropped
                await connection.send(frame_of(word + " "))
            self.speaking, self.waiting = False, True
            self._stopped_at = time.monotonic()
            await connection.send("StopSpeaking")
        except ConnectionClosed:
            self._gone()
            return False
        return True

    async def connected(self) -> None:
        """Wait for a connection."""
        await self._until(lambda: self._connection is not None)

    async def answered(self) -> bool:
        """Wait until the server has something to say, or has nothing to say; ``False``: the connection went away."""
        await self._until(lambda: not self.waiting or self._connection is None)
        return self._connection is not None

    async def hang_up(self) -> None:
        """End the call."""
        self._done, connection = True, self._connection
        if connection is not None:
            await connection.close()

    async def _until(self, condition: Any) -> None:
        while not condition():
            self._changed.clear()
            await self._changed.wait()

    def _gone(self) -> None:
        self._connection, self.speaking = None, False
        self._tell()

    def _tell(self) -> None:
        self._changed.set()

    def _receive(self, frame: str | bytes) -> None:
        if isinstance(frame, bytes):
            if not self.speaking:
                self.heard.append(f"< {word_of(frame)}")
                self.heard_at.append(time.monotonic())
                self._no_longer_waiting()
            return
        name, _, rest = frame.partition(" ")
        if name == "Message":
            item = json.loads(rest)
            self.items.append(item)
            if item["role"] == "user":
                self.heard.append(f"> {item['content']}")
                self.heard_at.append(time.monotonic())
        elif name in {"SkipAnswer", "CancelLastUserMessage"}:
            self._no_longer_waiting()

    def _no_longer_waiting(self) -> None:
        if self._stopped_at is not None:
            self.first_audio.append(time.monotonic() - self._stopped_at)
            self._stopped_at = None
        self.waiting = False
        self._tell()


async def main(url: str, *sentences: str) -> None:
    """Say each sentence, and listen."""
    caller = Caller(url)
    task = asyncio.create_task(caller.run())
    for sentence in sentences or ("order 1", "order 2"):
        await caller.connected()
        await caller.say(sentence)
        while not await caller.answered():
            await caller.connected()
        before = -1
        while len(caller.heard) != before:  # until it is silent for a moment
            before = len(caller.heard)
            await asyncio.sleep(1.5)
    await caller.hang_up()
    await task
    print("".join(line if line.startswith(">") else line[2:] for line in caller.heard))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
