"""Starts a fleet on this machine with one command: Redis or Valkey, N workers, and HAProxy in front of them.

    python run.py --workers 4 --port 8080           then: python client.py ws://127.0.0.1:8080/call/anna "order 1"

Each is a process of its own on 127.0.0.1:

- ``valkey-server`` or ``redis-server`` (Debian: ``apt install valkey-server`` or ``redis-server``),
- ``haproxy`` (Debian: ``apt install haproxy``), which sends a call to the worker with the fewest,
- each worker: ``uvicorn worker:app``, or hypercorn on Trio. One that dies is started again; SIGTERM (or Ctrl-C) ends all.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Self

HERE = Path(__file__).resolve().parent
HAPROXY = """
global
    maxconn 4000
defaults
    mode http
    timeout connect 2s
    timeout client 30s
    timeout server 30s
    timeout tunnel 4h           # a WebSocket, for as long as a call lasts
    option redispatch           # a worker that is gone is left out at once, not after the next check
    retries 3
    retry-on conn-failure empty-response 503
frontend calls
    bind 127.0.0.1:{port}
    default_backend workers
backend workers
    balance leastconn
    option httpchk GET /fleet/ready
    default-server inter 500ms fall 1 rise 1
{servers}
"""

SERVERS = {
    "uvicorn": "uvicorn worker:app --log-level warning --port {port} --timeout-graceful-shutdown 30 --ws websockets-sansio",
    # On Trio, in one process, which gets the signals itself.
    "hypercorn": "hypercorn worker:app -k trio --workers 0 --log-level warning -b 127.0.0.1:{port}",
}


class Fleet:
    """The processes of a fleet; use it with ``with``.

    Args:
        workers: How many.
        port: Of HAProxy; 0: any that is free.
        environment: More variables for the workers.
        server: ``"uvicorn"`` on asyncio, or ``"hypercorn"`` on Trio.
    """

    def __init__(
        self,
        workers: int,
        port: int = 0,
        environment: dict[str, str] | None = None,
        *,
        server: str = "uvicorn",
    ) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="fleet-"))
        self.port = port or free_port()
        self.ports = [free_port() for _ in range(workers)]
        self.redis_port = free_port()
        self.redis_url = f"redis://127.0.0.1:{self.redis_port}/0"
        self.environment = {**os.environ, "REDIS_URL": self.redis_url, **(environment or {})}
        self.redis: subprocess.Popen[bytes] | None = None
        self.haproxy: subprocess.Popen[bytes] | None = None
        self.workers: list[subprocess.Popen[bytes]] = []
        self._server = server
        self._over = threading.Event()
        self._nurse = threading.Thread(target=self._keep_alive, daemon=True)

    def __enter__(self) -> Self:
        try:
            self.start_redis()
            self.workers = [self._start_worker(port) for port in self.ports]
            for port in self.ports:
                wait_for(f"http://127.0.0.1:{port}/fleet/live")
            servers = "\n".join(f"    server worker{n} 127.0.0.1:{p} check" for n, p in enumerate(self.ports))
            config = self.folder / "haproxy.cfg"
            config.write_text(HAPROXY.format(port=self.port, servers=servers))
            self.haproxy = self._start("haproxy", [program("haproxy"), "-q", "-f", str(config)])
            wait_for(f"http://127.0.0.1:{self.port}/fleet/live")
        except BaseException:
            self.stop()
            raise
        self._nurse.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.stop()

    def start_redis(self) -> None:
        """Start the server that the workers share, empty."""
        options = [
            "--port",
            str(self.redis_port),
            "--bind",
            "127.0.0.1",
            "--save",
            "",
            "--maxmemory-policy",
            "noeviction",
        ]
        self.redis = self._start("redis", [program("valkey-server", "redis-server"), *options])
        for _ in range(200):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.redis_port)) == 0:
                    return
            time.sleep(0.05)
        raise RuntimeError("the Redis server does not start")

    def ask(self, command: str) -> str:
        """What Redis says to a command."""
        with socket.create_connection(("127.0.0.1", self.redis_port), 5) as connection:
            connection.sendall(f"{command}\r\n".encode())
            return connection.recv(100_000).decode()

    def stop(self) -> None:
        """End everything: the workers first, whose calls reach the end of a turn and are stored."""
        self._over.set()
        for worker in self.workers:
            worker.send_signal(signal.SIGCONT)
            worker.terminate()
        for process in [*self.workers, *filter(None, [self.haproxy, self.redis])]:
            process.send_signal(signal.SIGCONT)
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def log(self, name: str) -> str:
        """What a process has written: ``"worker0"``, ``"redis"``, ``"haproxy"``."""
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def _start_worker(self, port: int) -> subprocess.Popen[bytes]:
        command = [part.format(port=port) for part in SERVERS[self._server].split()]
        return self._start(f"worker{self.ports.index(port)}", [sys.executable, "-m", *command])

    def _start(self, name: str, command: Sequence[str]) -> subprocess.Popen[bytes]:
        with (self.folder / f"{name}.log").open("ab") as log:
            return subprocess.Popen(  # noqa: S603 - commands of this file
                command, cwd=HERE, env=self.environment, stdout=log, stderr=log
            )

    def _keep_alive(self) -> None:
        """Start a worker again that has died."""
        while not self._over.wait(0.1):
            for number, worker in enumerate(self.workers):
                if worker.poll() is not None and not self._over.is_set():
                    self.workers[number] = self._start_worker(self.ports[number])


def program(*names: str) -> str:
    """The path of the first that is installed."""
    for name in names:
        path = shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/bin:/usr/local/sbin")
        if path is not None:
            return path
    raise SystemExit(f"{' or '.join(names)} is not installed; on Debian: apt install {' | '.join(names)}")


def free_port() -> int:
    """A port of this machine that nobody uses."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_for(url: str) -> None:
    """Wait until ``url`` answers."""
    for _ in range(300):
        try:
            with urllib.request.urlopen(url, timeout=2):  # noqa: S310 - an address of this file
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
    raise RuntimeError(f"{url} does not answer")


def main() -> None:
    """Run until Ctrl-C or SIGTERM."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--port", type=int, default=8080)
    parser.add_argument("--server", choices=SERVERS, default="uvicorn")
    options = parser.parse_args()
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda _signal, _frame: ended.set())
    with Fleet(options.workers, options.port, server=options.server) as fleet:
        print(f"{options.workers} workers behind ws://127.0.0.1:{fleet.port}/call/NAME; logs in {fleet.folder}")
        try:
            ended.wait()
        except KeyboardInterrupt:
            print("ending")


if __name__ == "__main__":
    main()
