"""A Redis or Valkey server of one's own, on loopback, for tests that stop, fill and restart it."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import time
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

PROGRAM = shutil.which("valkey-server") or shutil.which("redis-server")

needs_server = pytest.mark.skipif(PROGRAM is None, reason="neither valkey-server nor redis-server is installed")


class Server:
    """One server process; what it holds is lost when it is restarted."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self.process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        assert PROGRAM is not None
        options = ["--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--dir", str(self.folder)]
        self.process = subprocess.Popen([PROGRAM, *options], stdout=subprocess.DEVNULL)
        for _ in range(500):
            if self.ask("PING").startswith(b"+PONG"):
                return
            time.sleep(0.02)
        raise RuntimeError("the server does not start")

    def ask(self, command: str) -> bytes:
        try:
            with socket.create_connection(("127.0.0.1", self.port), 2) as connection:
                connection.sendall(f"{command}\r\n".encode())
                return connection.recv(100_000)
        except OSError:
            return b""

    def stop(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)
        self.process.kill()
        self.process.wait()

    def pause(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)
