"""Real calls for three minutes: faster-whisper, espeak-ng and sockets; fails when something of them is left.

    nox -s voice_soak                          # on uvicorn, then on hypercorn with Trio
    python tests/soak/soak_voice.py --seconds 60 --server "hypercorn on trio"

Four callers at once, again and again: they speak (espeak-ng made the words), listen, interrupt, fall silent or hang
up in mid-sentence. Between rounds the server is asked what it has: tasks, threads, processes, descriptors, memory.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import threading
import time
from array import array
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from call_server_support import COMMANDS, running, state
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

CALLERS = 4
SENTENCES = ("What time do you open on Sunday?", "I would like a table for two.", "Stop, that is enough.")
COUNTED = ("tasks", "threads", "processes", "handles")
GROWTH = 1.10
"""Memory at the end, as a multiple of that after a quarter of the time."""


def speech(text: str) -> bytes:
    """``text`` as PCM16 at 16 kHz."""
    command = ["espeak-ng", "--stdout", text]
    wave = subprocess.run(command, check=True, capture_output=True).stdout
    samples = array("h", wave[44 : 44 + (len(wave) - 44) // 2 * 2])
    step = 22_050 / 16_000
    return array("h", (samples[int(place * step)] for place in range(int(len(samples) / step)))).tobytes()


def say(socket: ClientConnection, pcm: bytes) -> None:
    """Speak as the browser does, somewhat faster than one can."""
    socket.send("StartSpeaking")
    for start in range(0, len(pcm), 3200):
        socket.send(pcm[start : start + 3200])
        time.sleep(0.02)
    socket.send("StopSpeaking")


def hear(socket: ClientConnection, frames: int, seconds: float) -> int:
    """Read until so much audio has come, or for so long."""
    end, heard = time.monotonic() + seconds, 0
    while heard < frames and (left := end - time.monotonic()) > 0:
        try:
            heard += isinstance(socket.recv(left), bytes)
        except TimeoutError:
            break
    return heard


def caller(host: str, chance: random.Random, words: list[bytes], results: list[int]) -> None:
    """One call."""
    with connect(f"ws://{host}/call") as socket:
        try:
            hear(socket, 3, 5)
            for _ in range(chance.randint(1, 3)):
                say(socket, chance.choice(words))
                # Long enough to be answered, or so short that the next words interrupt.
                results.append(hear(socket, chance.choice([1, 5, 40]), 20))
            if chance.random() < 0.3:
                socket.send("StartSpeaking")  # and is gone
        except ConnectionClosed:
            results.append(0)


def left(host: str) -> dict[str, int]:
    """What the server has once it is quiet."""
    found: dict[str, Any] = {}
    for _ in range(50):
        before, found = found, state(host)
        if before and all(before[name] == found[name] for name in COUNTED):
            break
        time.sleep(0.2)
    return found


def soak(server: str, seconds: float, seed: int) -> list[str]:
    """Make calls; returns what is wrong."""
    chance = random.Random(seed)
    words = [speech(text) for text in SENTENCES]
    results: list[int] = []
    with TemporaryDirectory() as folder, running(server, Path(folder) / "log", app="soak.voice_app:app") as host:
        for _ in range(2):  # what is loaded or opened once
            caller(host, chance, words, results)
        first = left(host)
        quarter: dict[str, int] = {}
        began = time.monotonic()
        while (passed := time.monotonic() - began) < seconds:
            callers = [
                threading.Thread(target=caller, args=(host, random.Random(chance.random()), words, results))
                for _ in range(CALLERS)
            ]
            for thread in callers:
                thread.start()
            for thread in callers:
                thread.join()
            if not quarter and passed > seconds / 4:
                quarter = left(host)
        last = left(host)
        problems = [f"{name}: {first[name]} before, {last[name]} after" for name in COUNTED if last[name] > first[name]]
        if quarter and last["kib"] > quarter["kib"] * GROWTH:
            problems.append(f"memory: {quarter['kib']} KiB after a quarter, {last['kib']} KiB at the end")
        answered = sum(heard > 0 for heard in results)
        sys.stdout.write(
            f"{server}: {len(results)} turns, {answered} answered, {first} → {last}, memory after a quarter {quarter.get('kib')} KiB\n"
        )
        sys.stdout.flush()
        if answered < len(results) * 0.9:
            problems.append(f"only {answered} of {len(results)} turns were answered")
        return problems


def main() -> None:
    """Soak the servers one after the other."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=180.0, help="for each server (180)")
    parser.add_argument("--server", choices=tuple(COMMANDS), action="append")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    problems = [
        f"{server}: {problem}"
        for server in options.server or COMMANDS
        for problem in soak(server, options.seconds, options.seed)
    ]
    sys.exit("\n".join(problems) or None)


if __name__ == "__main__":
    main()
