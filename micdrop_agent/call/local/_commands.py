"""Text to speech by a command of the system: espeak-ng or flite, one process for a sentence.

The text goes in through a pipe or as one argument that no option can be; nothing of it is read as a command. When
the caller interrupts, the process is killed at once.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from abc import ABC, abstractmethod
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import anyio

from micdrop_agent.call._pcm import PcmConverter
from micdrop_agent.errors import MicdropError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from anyio.abc import ObjectReceiveStream, Process

    from micdrop_agent.call import Voice

__all__ = ["EspeakTTS", "FliteTTS"]

_CLOSE_TIMEOUT_S: Final = 2.0
"""Longest that a killed process may take to be gone."""

_READ_BYTES: Final = 8192
_INSTALL: Final = {
    "espeak-ng": "apt-get install espeak-ng (Debian, Ubuntu), brew install espeak-ng (macOS)",
    "flite": "apt-get install flite (Debian, Ubuntu), brew install flite (macOS)",
}


class _CommandTTS(ABC):
    """Runs a command for each piece of text, one after the other."""

    _command: str

    def __init__(self) -> None:
        self._path = _find(self._command)

    async def synthesize(self, text: ObjectReceiveStream[str], voice: Voice) -> None:
        """Say all of ``text`` through ``voice``, until the text ends."""
        async for piece in text:
            if piece.strip():
                await self._say(piece, voice)

    @abstractmethod
    async def _say(self, piece: str, voice: Voice) -> None: ...


class EspeakTTS(_CommandTTS):
    """Speaks through espeak-ng: a hundred languages, at once, sounds like a machine.

    Its audio is sent while it is made.

    Args:
        voice: One of ``espeak-ng --voices``, mostly a language tag.
        words_per_minute: How fast it speaks, 80 to 450.
        pitch: How high, 0 to 99.

    Raises:
        MicdropError: espeak-ng is not installed.
        ValueError: An option is out of range.
    """

    _command = "espeak-ng"

    def __init__(self, voice: str = "en-us", *, words_per_minute: int = 165, pitch: int = 50) -> None:
        if not 80 <= words_per_minute <= 450 or not 0 <= pitch <= 99:  # noqa: PLR2004 - espeak-ng's own limits
            raise ValueError("words_per_minute must be 80 to 450, and pitch 0 to 99")
        super().__init__()
        options = ["-v", _plain(voice), "-s", str(words_per_minute), "-p", str(pitch)]
        self._arguments = [self._path, *options, "-b", "1", "--stdin", "--stdout"]

    async def _say(self, piece: str, voice: Voice) -> None:
        async with _running(self._arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            # A sentence is far smaller than a pipe, so this does not wait for the command.
            await process.stdin.send(piece.replace("\0", " ").encode())
            await process.stdin.aclose()
            audio, made = PcmConverter(), 0
            try:
                while True:
                    chunk = audio.feed(await process.stdout.receive(_READ_BYTES))
                    made += len(chunk)
                    await voice.write(chunk)
            except anyio.EndOfStream:
                await voice.write(audio.finish())
            # It says with words alone that it does not know a voice.
            await _check(process, self._command, silent=not made)


class FliteTTS(_CommandTTS):
    """Speaks English through flite: small, clearer than espeak-ng. Its audio comes a sentence at a time.

    Args:
        voice: One of ``flite -lv``.

    Raises:
        MicdropError: flite is not installed.
    """

    _command = "flite"

    def __init__(self, voice: str = "slt") -> None:
        super().__init__()
        self._voice = _plain(voice)

    async def _say(self, piece: str, voice: Voice) -> None:
        # flite goes back in what it writes, which a pipe cannot do.
        with tempfile.TemporaryDirectory(prefix="micdrop-flite-") as folder:
            file = anyio.Path(folder) / "speech.wav"
            arguments = [self._path, "-voice", self._voice, "-t", piece.replace("\0", " "), "-o", str(file)]
            async with _running(arguments, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as process:
                await process.wait()
                await _check(process, self._command)
            audio = PcmConverter()
            data = audio.feed(await file.read_bytes()) + audio.finish()
        for start in range(0, len(data), _READ_BYTES):
            await voice.write(data[start : start + _READ_BYTES])


@asynccontextmanager
async def _running(arguments: list[str], *, stdin: int, stdout: int) -> AsyncGenerator[Process]:
    """A process that is gone at the end, whatever happens."""
    process = await anyio.open_process(arguments, stdin=stdin, stdout=stdout, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        with anyio.move_on_after(_CLOSE_TIMEOUT_S, shield=True):
            await process.aclose()


async def _check(process: Process, command: str, *, silent: bool = False) -> None:
    with anyio.fail_after(_CLOSE_TIMEOUT_S):
        code = await process.wait()
    if code or silent:
        raise MicdropError(f"{command} failed with status {code}; does it have this voice?")


def _find(command: str) -> str:
    path = shutil.which(command)
    if path is None:
        raise MicdropError(f"{command} is not installed: {_INSTALL[command]}")
    return str(Path(path))


def _plain(voice: str) -> str:
    if not voice or voice.startswith("-") or not voice.isprintable():
        raise ValueError(f"{voice!r} is not the name of a voice")
    return voice
