"""Reads Redis' own log of what it does (``MONITOR``), and tells whether two owners ever wrote a call."""

from __future__ import annotations

import asyncio
import hashlib
import re
from typing import Final

from micdrop_agent.store import redis_scripts

LINE: Final = re.compile(rb"^\+?[\d.]+ \[\d+ ([^\]]+)\] (.*)$")
WORD: Final = re.compile(rb'"((?:[^"\\]|\\.)*)"')
NAMES: Final = ("OPEN", "APPLY", "RENEW", "RESTORE", "RELEASE")
SCRIPTS: Final = {hashlib.sha1(getattr(redis_scripts, name).encode()).hexdigest(): name for name in NAMES}
WRITES: Final = {b"RPUSH", b"DEL", b"LTRIM", b"HSET", b"HINCRBY"}


class Monitor:
    """Follows a server.

    Args:
        port: Its port.
    """

    def __init__(self, port: int) -> None:
        self._port = port
        self._faults: list[str] = []
        self._fences: dict[bytes, int] = {}
        self._script: str | None = None
        self._call = b""
        self._fence = 0
        self._counted = False
        self.owners = 0
        """Openings that were granted."""
        self.writes = 0
        """Scripts that stored something."""

    async def run(self) -> None:
        """Read until it is cancelled."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port, limit=2**24)
        writer.write(b"MONITOR\r\n")
        try:
            while line := await reader.readline():
                self._read(line.strip())
        finally:
            writer.close()

    def faults(self) -> list[str]:
        """What should not have happened."""
        if not self.owners or not self.writes:
            return [*self._faults, "the server's log shows no openings or no writes: it was not read"]
        return self._faults

    def _read(self, line: bytes) -> None:
        found = LINE.match(line)
        if found is None:
            return
        words = WORD.findall(found[2])
        if found[1] != b"lua":
            self._begin(words)
        elif self._script is not None:
            self._effect(words)

    def _begin(self, words: list[bytes]) -> None:
        """A client has sent a command; what follows is what it does."""
        self._script = SCRIPTS.get(words[1].decode(), None) if words[0].upper() == b"EVALSHA" else None
        if words[0].upper() == b"EVAL":
            self._script = SCRIPTS.get(self._digest(words[1]))
        self._counted = False
        if self._script is not None:
            self._call = words[3]
            self._fence = int(words[6]) if self._script != "OPEN" else 0

    @staticmethod
    def _digest(script: bytes) -> str:
        plain = script.decode().encode().decode("unicode_escape").encode()
        return hashlib.sha1(plain).hexdigest()

    def _effect(self, words: list[bytes]) -> None:
        command = words[0].upper()
        if self._script == "OPEN":
            if command == b"HINCRBY":
                self._fences[self._call] = self._fences.get(self._call, 0) + 1
                self.owners += 1
        elif command in WRITES and words[1].startswith(self._call.rpartition(b":")[0]):
            if not self._counted:
                self._counted = True
                self.writes += self._script != "RELEASE"
            if self._fence != self._fences.get(self._call):
                text = f"{self._script} of owner {self._fence} wrote {self._call!r}, whose owner was"
                self._faults.append(f"{text} {self._fences.get(self._call)}")
