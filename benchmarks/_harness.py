"""What every benchmark shares: a quiet process, a loopback provider, interleaved rounds, one JSON line.

Nothing here is worth anything as a bare number: a laptop, a CI machine and the same machine an hour
later differ by more than most changes do. So each benchmark measures a floor of the same kind in the
same rounds (bare httpx2, a raw socket, a plain generator), and prints medians together with ratios.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import logging
import os
import platform
import resource
import socket
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import anyio

HERE: Final = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from typing import Self

LOOPS: Final = ("asyncio", "uvloop", "trio")

SYSTEM: Final = (
    "You are a helpful voice assistant on a phone line. Answer in one or two short spoken sentences, "
    "never use lists or markup, and say numbers as words."
)
SAID: Final = (
    ("user", "Good morning, I would like to move my appointment."),
    ("assistant", "Of course. May I have your name and the day of the appointment?"),
    ("user", "Brandt, and it was next Tuesday at ten."),
    ("assistant", "Thank you, Mrs Brandt. Thursday at nine or Friday at two are free."),
)
LAST: Final = "Friday at two sounds good. Do I need to bring anything?"


def messages(count: int) -> list[dict[str, str]]:
    """A conversation of ``count`` messages: the prompt, turns, and the caller's last words."""
    turns = [SAID[number % len(SAID)] for number in range(max(0, count - 2))]
    middle = [{"role": role, "content": text} for role, text in turns]
    return [{"role": "system", "content": SYSTEM}, *middle, {"role": "user", "content": LAST}]


# ------------------------------------------------------------------------------- where it runs


def pin() -> int | None:
    """Keep this process on the last CPU; returns the one that is left for the provider."""
    allowed: list[int] = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    if len(allowed) < 2:
        return None
    os.sched_setaffinity(0, {allowed[-1]})
    return allowed[0]


def many_files() -> None:
    """Allow as many open files as the system lets us: one per live answer."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """No garbage collection and no log lines within."""
    logging.disable(logging.CRITICAL)
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.unfreeze()
        logging.disable(logging.NOTSET)


def run(loop: str, main: Callable[..., Awaitable[Any]], *args: Any) -> Any:
    """Run ``main(*args)`` on ``"asyncio"``, ``"uvloop"`` or ``"trio"``."""
    backend = "trio" if loop == "trio" else "asyncio"
    options = {"use_uvloop": True} if loop == "uvloop" else {}
    return anyio.run(main, *args, backend=backend, backend_options=options)


def with_byte_code() -> dict[str, str]:
    """An environment in which an interpreter keeps its byte code, as a user's does; the first start pays."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def resident() -> int:
    """Memory of this process in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Provider:
    """The loopback provider, in a process of its own.

    Attributes:
        url: Base URL for clients.
        port: Its port at 127.0.0.1.
    """

    def __init__(self, *, cpu: int | None = None, certificate: str | None = None) -> None:
        argv = [sys.executable, str(HERE / "_provider.py")]
        argv += [] if cpu is None else ["--cpu", str(cpu)]
        argv += [] if certificate is None else ["--tls", certificate]
        self._process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())
        self.url = f"{'http' if certificate is None else 'https'}://127.0.0.1:{self.port}/v1"
        self._socket: socket.socket | None = None

    def ask(self, what: str) -> Any:
        """``"lost"`` or ``"stats"``, over a connection that is kept."""
        if self._socket is None:
            self._socket = socket.create_connection(("127.0.0.1", self.port))
        self._socket.sendall(f"GET /{what} HTTP/1.1\r\nhost: x\r\n\r\n".encode())
        return json.loads(self._socket.recv(65536).partition(b"\r\n\r\n")[2])

    def lost_after(self, moment: int, *, within: float = 1.0) -> int | None:
        """When an answer was first seen to be cut, after ``moment`` (monotonic ns); ``None``: not in time."""
        end = time.monotonic() + within
        while time.monotonic() < end:
            lost: int = self.ask("lost")
            if lost >= moment:
                return lost
        return None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self._socket is not None:
            self._socket.close()
        assert self._process.stdin is not None
        self._process.stdin.close()  # it leaves when nobody holds its input open
        self._process.wait(5)
        assert self._process.stdout is not None
        self._process.stdout.close()


# -------------------------------------------------------------------------------------- results


class Samples:
    """Measured values by row and by who was measured."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))

    def add(self, row: str, who: str, value: float) -> None:
        """Note one value."""
        self.rows[row][who].append(value)

    def median(self, row: str, who: str) -> float:
        """The middle value."""
        return statistics.median(self.rows[row][who])

    def percentile(self, row: str, who: str, share: float) -> float:
        """The smallest value that a ``share`` of the values does not exceed."""
        ordered = sorted(self.rows[row][who])
        return ordered[min(len(ordered) - 1, max(0, -int(-share * len(ordered) // 1) - 1))]

    def ratio(self, row: str, who: str, to: str) -> float:
        """Median to median."""
        return self.median(row, who) / self.median(row, to)

    def paired(self, row: str, who: str, to: str) -> float:
        """Median of the ratios round by round: what disturbed a round disturbed both."""
        return statistics.median(a / b for a, b in zip(self.rows[row][who], self.rows[row][to], strict=False))

    def medians(self, digits: int = 1) -> dict[str, dict[str, float]]:
        """All middle values."""
        return {row: {who: round(self.median(row, who), digits) for who in rows} for row, rows in self.rows.items()}

    def spread(self, row: str, who: str, points: int = 100) -> list[float]:
        """The distribution as ``points`` percentiles, for a plot."""
        return [round(self.percentile(row, who, (at + 0.5) / points), 2) for at in range(points)]


class Goals:
    """What was to be reached, beside what was."""

    def __init__(self) -> None:
        self.told: dict[str, dict[str, Any]] = {}

    def at_most(self, name: str, value: float, limit: float) -> None:
        """``value`` should not exceed ``limit``."""
        self.told[name] = {"value": round(value, 3), "limit": limit, "met": value <= limit}


def arguments(text: str | None, *, rounds: int, loops: tuple[str, ...] = LOOPS) -> argparse.ArgumentParser:
    """The options that all benchmarks have."""
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--loop", choices=loops, default="asyncio", help="the event loop (asyncio)")
    parser.add_argument("--rounds", type=int, default=rounds, help=f"rounds that count ({rounds})")
    parser.add_argument("--spread", action="store_true", help="add the distributions, for plot.py")
    return parser


def tell(name: str, loop: str, samples: Samples | None = None, goals: Goals | None = None, **more: Any) -> None:
    """Print the result as one line of JSON."""
    line: dict[str, Any] = {
        "benchmark": name,
        "loop": loop,
        "python": platform.python_version(),
        "load": round(os.getloadavg()[0], 1),
    }
    if samples is not None:
        line["medians"] = samples.medians()
    line |= more
    if goals is not None:
        line["goals"] = goals.told
    print(json.dumps(line), flush=True)
