"""The soak on one event loop: rounds of random calls, and what is left after each of them.

    round: callers ──▶ calls until its time is over ──▶ all gone ──▶ collect ──▶ sample ──▶ next round

``python soak_worker.py --loop trio --seconds 60 --seed 1`` prints JSON lines: samples, then counts and errors.
The samples within a round show the load; those between two rounds must all be the same. None is kept here:
that would be growth itself.
"""

from __future__ import annotations

import argparse
import gc
import json
import logging
import os
import random
import subprocess
import sys
import time
import types
import warnings
from collections import Counter
from pathlib import Path
from typing import Any, Final

import anyio
from soak_calls import Caller

ROUND: Final = 2.0
"""Seconds of one round, less in a short run; the last calls of it may take longer."""

CALLERS: Final = 6
"""Calls at the same time."""

SETTLE: Final = 3.0
"""Seconds after a round in which the server sees the last connection close."""

RUNNING: Final = (types.AsyncGeneratorType, types.GeneratorType, types.CoroutineType)


class Server:
    """The model server, in a process of its own."""

    def __init__(self) -> None:
        script = str(Path(__file__).with_name("soak_server.py"))
        self._process = subprocess.Popen(
            [sys.executable, script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        self.base_url = self._line()

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def open_connections(self) -> int:
        """Connections that the server has; asking takes a fraction of a millisecond."""
        assert self._process.stdin is not None
        self._process.stdin.write("?\n")
        told: dict[str, int] = json.loads(self._line())
        return told["open"]

    def close(self) -> None:
        """End it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(10)
        self._process.stdout.close()


class Soak:
    """One run."""

    callers = CALLERS
    most = 10**9
    """Answers after which it ends before its time."""

    def __init__(self, server: Any, seconds: float, seed: int) -> None:
        self.server = server
        self.seconds = seconds
        self.dice = random.Random(seed)
        self.tally: Counter[str] = Counter()
        self.started = time.monotonic()

    def take(self, *, quiet: bool) -> None:
        """Print what there is right now; the rest of it only between two rounds, where nothing runs."""
        sample: dict[str, Any] = {
            "t": round(time.monotonic() - self.started, 2),
            "quiet": quiet,
            "rss_kib": _resident(),
            "connections": self.server.open_connections(),
            "answers": self.tally["answers"],
        }
        if quiet:
            files = _open_files()
            sample |= {
                "fds": len(files),
                "sockets": sum(1 for name in files if name.startswith("socket:")),
                "tasks": len(anyio.get_running_tasks()),
                "generators": sum(1 for thing in gc.get_objects() if isinstance(thing, RUNNING)),
                "blocks": sys.getallocatedblocks(),
            }
        tell(sample)

    def complaints(self) -> list[str]:
        """What is wrong besides leaks."""
        return []

    async def run(self) -> None:
        """Rounds until the time is over."""
        while time.monotonic() - self.started < self.seconds and self.tally["answers"] < self.most:
            until = time.monotonic() + min(ROUND, self.seconds / 8)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._watch)
                async with anyio.create_task_group() as callers:
                    for _ in range(self.callers):
                        callers.start_soon(self._calls, until)
                tasks.cancel_scope.cancel()
            await self._settle()
            self.take(quiet=True)

    def caller(self, dice: random.Random) -> Caller:
        """Somebody who calls."""
        return Caller(self.server.base_url, dice, self.tally)

    async def _calls(self, until: float) -> None:
        caller = self.caller(random.Random(self.dice.random()))
        while time.monotonic() < until:
            await caller.call()

    async def _watch(self) -> None:
        while True:
            await anyio.sleep(0.25)
            self.take(quiet=False)

    async def _settle(self) -> None:
        """Let the server see what was closed; a second time, so that what garbage closes is closed too."""
        end = time.monotonic() + SETTLE
        for _ in range(2):
            gc.collect()
            await anyio.sleep(0.05)
            while self.server.open_connections() and time.monotonic() < end:  # noqa: ASYNC110 - another process
                await anyio.sleep(0.02)


def tell(what: dict[str, Any]) -> None:
    """Print one line, at once."""
    print(json.dumps(what), flush=True)  # noqa: T201 - that is how its parent learns of it


def _resident() -> int:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") // 1024


def _open_files() -> list[str]:
    found: list[str] = []
    for entry in tuple(Path("/proc/self/fd").iterdir()):
        try:
            found.append(str(entry.readlink()))
        except OSError:  # the one of the listing itself
            continue
    return found


class Complaints(logging.Handler):
    """What asyncio reports only in its log, and what finalizers raise: each of it is a leak or an error."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []
        sys.unraisablehook = self._unraisable
        logging.getLogger("asyncio").addHandler(self)
        logging.getLogger("trio").addHandler(self)

    def _unraisable(self, hook: Any) -> None:
        self.found.append(f"{hook.err_msg or 'in a finalizer'}: {hook.exc_value!r} ({hook.object!r})")

    def emit(self, record: logging.LogRecord) -> None:
        """Keep it."""
        self.found.append(record.getMessage())


def soak(loop: str, seconds: float, seed: int, *, hostile: bool = False, most: int = 10**9) -> dict[str, Any]:
    """Run, and return what there is to say at the end."""
    logging.getLogger("micdrop_agent").setLevel(logging.CRITICAL)  # answers fail here on purpose
    warnings.simplefilter("error", ResourceWarning)
    complaints = Complaints()
    run: Soak
    if hostile:
        from hostile_soak import HostileSoak

        run = HostileSoak(loop, seconds, seed)
    else:
        run = Soak(Server(), seconds, seed)
    run.most = most
    options: dict[str, Any] = {"use_uvloop": True} if loop == "uvloop" else {}
    error: str | None = None
    try:
        anyio.run(run.run, backend="trio" if loop == "trio" else "asyncio", backend_options=options)
    except Exception as raised:
        logging.getLogger("soak").exception("the run broke off")
        error = f"{type(raised).__name__}: {raised}"
    finally:
        run.server.close()
    gc.collect()
    return {
        "loop": loop,
        "seed": seed,
        "seconds": round(time.monotonic() - run.started, 1),
        "tally": dict(sorted(run.tally.items())),
        "complaints": [*run.complaints(), *complaints.found][:20],
        "error": error,
    }


def main() -> None:
    """Print everything that was seen."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--loop", choices=["asyncio", "uvloop", "trio"], required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--hostile", action="store_true")
    parser.add_argument("--most", type=int, default=10**9)
    options = parser.parse_args()
    tell(soak(options.loop, options.seconds, options.seed, hostile=options.hostile, most=options.most))


if __name__ == "__main__":
    main()
