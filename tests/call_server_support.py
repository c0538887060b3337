"""Starts the call server of the tests in a process of its own, under uvicorn and under hypercorn on Trio."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Generator

HERE = Path(__file__).parent
COMMANDS = {
    "uvicorn on asyncio": ["uvicorn", "call_app:app", "--log-level", "warning", "--ws", "websockets-sansio", "--port"],
    "hypercorn on trio": ["hypercorn", "call_app:app", "-k", "trio", "-b"],
}


@contextmanager
def running(name: str, log: Path, *, app: str = "call_app:app", **environment: str) -> Generator[str]:
    """The host and port of a running server; fails if it has logged a traceback.

    Args:
        name: One of ``COMMANDS``.
        log: The file that it logs to.
        app: What is served, in place of the app of the tests.
        **environment: Variables for it.
    """
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    bind = str(port) if "uvicorn" in name else f"127.0.0.1:{port}"
    with log.open("w") as output:
        parts = [app if part == "call_app:app" else part for part in COMMANDS[name]]
        command = [sys.executable, "-m", *parts, bind]
        process = subprocess.Popen(command, cwd=HERE, env={**os.environ, **environment}, stdout=output, stderr=output)
        try:
            _wait_for(f"http://127.0.0.1:{port}/state", process)
            yield f"127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(10)


def state(host: str) -> dict[str, Any]:
    """What the server has at this moment: tasks, handles, results of its calls."""
    with urllib.request.urlopen(f"http://{host}/state", timeout=5) as response:
        found: dict[str, Any] = json.load(response)
        return found


def _wait_for(url: str, process: subprocess.Popen[bytes]) -> None:
    for _ in range(200):
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except (urllib.error.URLError, ConnectionError):
            assert process.poll() is None, "the server has ended"
            time.sleep(0.1)
    raise AssertionError("the server does not answer")
