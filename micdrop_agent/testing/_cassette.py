"""Records what a real server sends, once, and plays it again from then on.

    agent ── connect ──▶ Cassette ──┬─ records ──▶ RecordedStream ──▶ the real server
                                    └─ replays ──▶ PlayedStream      (no network at all)

Invariants, each one pinned in tests/test_testing_cassette.py:

1. A cassette that replays opens no connection.
2. A request that was not recorded ends the test; no retry and no fallback hides it.
3. What is secret never reaches the file.
4. The same file gives the same trace on every event loop.
"""

from __future__ import annotations

import os
import socket
import ssl
import tempfile
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

import anyio
import anyio.lowlevel

from micdrop_agent.testing._disturbance import Disturbance
from micdrop_agent.testing._loop import time_stands_still
from micdrop_agent.testing._mode import CassetteMode, DefaultMode
from micdrop_agent.testing._nearest import best_match, explain
from micdrop_agent.testing._played import PlayedStream
from micdrop_agent.testing._recorder import RecordedStream
from micdrop_agent.testing._secrets import Redactor
from micdrop_agent.testing._tape import (
    CassetteError,
    Recording,
    RefusedConnection,
    RequestSeen,
    Tape,
    UnrecordedRequestError,
    dump,
)
from micdrop_agent.testing._tape_reader import load

if TYPE_CHECKING:
    import re

    from anyio.abc import ByteStream

__all__ = ["Cassette", "Match"]

Match: TypeAlias = Callable[[RequestSeen, RequestSeen], bool]
"""Whether a recorded request and the one that is sent are the same, where their bodies are not equal."""

ConnectFn: TypeAlias = "Callable[[str, int, bool], Awaitable[ByteStream]]"

_MODES: Final = frozenset({"once", "replay", "record"})


class Cassette:
    """Stands between an agent and its server: ``OpenaiAgent(connect=cassette.connect)``.

    While recording, requests go to the real server, and what it answers is written to ``path`` with its times.
    When replaying, the file answers, and nothing can reach the network. A request is answered by the recorded one
    with the same method, path and body (white space and the order of keys in JSON do not count); the same request
    twice gets its recorded responses in order. Each event loop begins at the start of the cassette.

    Keys, cookies and organisation ids are removed before anything is written, and a file that still holds one is
    refused. Once a sweep has interrupted the run, later requests are answered by the nearest recorded one:
    they contain what was interrupted, and nobody recorded that.

    Args:
        path: The file, by custom ``tests/cassettes/NAME.jsonl``.
        mode: ``"once"``, ``"replay"`` or ``"record"``; by default what ``pytest --cassette-mode`` says, else ``"once"``.
        match: Further requests that count as the same: called with the recorded request and the one that is sent, for
            each with the same method and path.
        redact: Strings and patterns that are removed as keys are.
        speed: How much faster than recorded it plays; 0 plays without pauses.
        upstream: Opens the real connections while recording; by default TCP, with TLS for ``https``.

    Raises:
        CassetteError: The file is missing, cut, of a newer format, or otherwise not to be read.
        ValueError: An argument is wrong.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        mode: CassetteMode | None = None,
        *,
        match: Match | None = None,
        redact: Iterable[str | re.Pattern[str]] = (),
        speed: float = 1.0,
        upstream: ConnectFn | None = None,
    ) -> None:
        chosen = mode or DefaultMode.mode or "once"
        if chosen not in _MODES:
            raise ValueError(f'mode is "once", "replay" or "record", not {chosen!r}')
        if not speed >= 0:
            raise ValueError(f"speed is a number from 0 on, not {speed!r}")
        self.path: Final = Path(path)
        self._match = match
        self._speed = speed
        self.upstream: ConnectFn | None = upstream
        """Opens the real connections while recording; may be set until the first one is opened."""
        self._redactor = Redactor(redact)
        self._attempts: dict[str, int] = {}
        self._recording_loop: object = None
        self.recording: bool = chosen == "record" or (chosen == "once" and not self.path.exists())
        """Whether it records; ``False`` once what was recorded is played to another event loop."""
        self._tape = Tape() if self.recording else self._read()
        self._played: anyio.lowlevel.RunVar[set[int]] = anyio.lowlevel.RunVar(f"cassette {self.path}")
        self._opened: anyio.lowlevel.RunVar[dict[str, int]] = anyio.lowlevel.RunVar(f"opened {self.path}")

    def __repr__(self) -> str:
        return f"Cassette({str(self.path)!r}, {'recording' if self.recording else 'replaying'})"

    @property
    def requests(self) -> list[RequestSeen]:
        """The requests that it holds, in order, without their secrets."""
        self._redact()
        return [recording.request for recording in self._tape.recordings]

    async def connect(self, host: str, port: int, tls: bool) -> ByteStream:
        """Open a connection: to the real server, or to the file. This is what agents take as ``connect=``.

        Raises:
            OSError: The connection failed when it was recorded, and so it does now; or it fails now.
            CassetteError: What was recorded cannot be written.
        """
        where = f"{host}:{port}"
        if self._still_records():
            return await self._record(where, host, port, tls)
        await anyio.lowlevel.checkpoint()
        await self._fail_as_recorded(where)

        def find(method: str, path: str, headers: dict[str, str], body: bytes) -> Recording:
            self._redactor.learn(path, headers.items())
            return self._find(self._redactor.request(method, where, path, headers, body))

        return PlayedStream(find, self._speed)

    # -- recording

    def _still_records(self) -> bool:
        """The loop that recorded goes on doing so; another one, as in a sweep, gets what is there."""
        if not self.recording:
            return False
        loop = anyio.lowlevel.current_token()
        if self._recording_loop is None:
            self._recording_loop = loop
        if self._recording_loop != loop:
            self._redact()
            self.recording = False
        return self.recording

    async def _record(self, where: str, host: str, port: int, tls: bool) -> ByteStream:
        attempt = self._attempts[where] = self._attempts.get(where, -1) + 1
        try:
            stream = await self._open(host, port, tls)
        except OSError as error:
            self._tape.refused.append(RefusedConnection(where, attempt, _kind_of(error), str(error)))
            self._write()
            raise

        def begin(method: str, path: str, headers: dict[str, str], body: bytes) -> Recording:
            self._redactor.learn(path, headers.items())
            self._tape.recordings.append(Recording(RequestSeen(method, where, path, headers, body)))
            return self._tape.recordings[-1]

        return RecordedStream(stream, begin, self._write)

    async def _open(self, host: str, port: int, tls: bool) -> ByteStream:
        if self.upstream is not None:
            return await self.upstream(host, port, tls)
        from micdrop_agent.transport.connection import connect_direct

        with time_stands_still(True):
            return await connect_direct(host, port, tls, None)

    def _redact(self) -> None:
        """Remove what is secret from everything that was recorded so far: a key may be known only now."""
        redactor = self._redactor
        for recording in self._tape.recordings:
            redactor.learn("", recording.headers)
        for recording in self._tape.recordings:
            one = recording.request
            recording.request = redactor.request(one.method, one.host, one.path, one.headers, one.body)
            recording.headers[:] = redactor.headers(recording.headers)
            _redact_body(recording, redactor)

    def _write(self) -> None:
        """Write the complete file: it replaces the one before in one step.

        Raises:
            CassetteError: A secret would be in it.
        """
        self._redact()
        refused = [
            RefusedConnection(self._redactor.text(one.host), one.attempt, one.error, self._redactor.text(one.words))
            for one in self._tape.refused
        ]
        tape = Tape(self._tape.recordings, refused)
        text = dump(tape)
        if (place := self._redactor.leaks(text, tape)) is not None:
            raise CassetteError(
                f"{self.path} was not written: {place} still holds a key, a cookie or what redact= names, "
                "probably cut into pieces. Ask the server for something else, or use another key."
            )
        self.path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=self.path.parent, prefix=f".{self.path.name}.")
        try:
            with os.fdopen(handle, "w", encoding="utf-8", errors="surrogateescape", newline="\n") as file:
                file.write(text)
            Path(name).chmod(0o644)  # mkstemp made it private; it is meant for version control
            Path(name).replace(self.path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise

    # -- replaying

    def _read(self) -> Tape:
        try:
            text = self.path.read_text(encoding="utf-8", errors="surrogateescape")
        except FileNotFoundError:
            raise CassetteError(
                f'there is no cassette {self.path}; record it with mode="record" or pytest --cassette-mode=record'
            ) from None
        return load(text, str(self.path))

    async def _fail_as_recorded(self, where: str) -> None:
        opened = self._opened.get(dict[str, int]())
        attempt = opened[where] = opened.get(where, -1) + 1
        self._opened.set(opened)
        failed = next((one for one in self._tape.refused if (one.host, one.attempt) == (where, attempt)), None)
        if failed is not None:
            raise _error_of(failed)

    def _find(self, request: RequestSeen) -> Recording:
        """The recording that answers ``request``.

        Raises:
            UnrecordedRequestError: There is none.
        """
        played = self._played.get(set[int]())
        number = best_match(self._tape.recordings, request, played, self._match, disturbed=Disturbance.happened)
        if number is None:
            raise UnrecordedRequestError(explain(str(self.path), self._tape.recordings, request, played))
        played.add(number)
        self._played.set(played)
        return self._tape.recordings[number]


def _redact_body(recording: Recording, redactor: Redactor) -> None:
    """Remove secrets from a body; a length that was announced goes on being right."""
    before = [piece for _, piece in recording.body]
    after = redactor.pieces(before)
    if after == before:
        return
    grown = sum(map(len, after)) - sum(map(len, before))
    recording.body[:] = [(at, piece) for (at, _), piece in zip(recording.body, after, strict=True)]
    recording.headers[:] = [
        (name, str(int(value) + grown) if name == "content-length" else value) for name, value in recording.headers
    ]


def _kind_of(error: OSError) -> str:
    if isinstance(error, ConnectionRefusedError):
        return "refused"
    if isinstance(error, socket.gaierror):
        return "unknown host"
    return "tls" if isinstance(error, ssl.SSLError) else "unreachable"


def _error_of(failed: RefusedConnection) -> OSError:
    kinds: dict[str, type[OSError]] = {
        "refused": ConnectionRefusedError,
        "unknown host": socket.gaierror,
        "tls": ssl.SSLError,
    }
    return kinds.get(failed.error, OSError)(f"{failed.words} (as recorded)")
