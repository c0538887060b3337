"""A PostgreSQL server of one's own, on loopback, for tests that stop, cut off and restart it."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import pytest


def _programs() -> Path | None:
    """The folder of the server's programs; Debian keeps them out of the path."""
    found = shutil.which("initdb")
    if found is not None:
        return Path(found).parent
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    return folders[-1].parent if folders else None


PROGRAMS = _programs()
# The server refuses to run as root.
AS_USER = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups"] if os.geteuid() == 0 else []

needs_postgres = pytest.mark.skipif(PROGRAMS is None, reason="PostgreSQL is not installed")


class Postgres:
    """One server process with a database of its own."""

    def __init__(self) -> None:
        assert PROGRAMS is not None
        # Not in pytest's folder, where another user cannot go.
        self.folder = Path(tempfile.mkdtemp(prefix="micdrop-postgres-"))
        if os.geteuid() == 0:
            shutil.chown(self.folder, "nobody")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.dsn = f"host=127.0.0.1 port={self.port} dbname=postgres user=micdrop"
        self.process: subprocess.Popen[bytes] | None = None
        initdb = [str(PROGRAMS / "initdb"), "-D", str(self.folder / "data"), "-U", "micdrop", "-E", "UTF8"]
        options = ["--no-sync", "--no-locale", "-A", "trust"]
        subprocess.run([*AS_USER, *initdb, *options], check=True, stdout=subprocess.DEVNULL, cwd=self.folder)
        self.start()

    def start(self) -> None:
        assert PROGRAMS is not None
        command = [*AS_USER, str(PROGRAMS / "postgres"), "-D", str(self.folder / "data")]
        options = ["-p", str(self.port), "-h", "127.0.0.1", "-k", "", "-c", "fsync=off"]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen([*command, *options], stdout=log, stderr=log, cwd=self.folder)
        for _ in range(500):
            if self.answers():
                return
            time.sleep(0.02)
        raise RuntimeError("the server does not start")

    def answers(self) -> bool:
        import psycopg

        try:
            with psycopg.connect(self.dsn, connect_timeout=2):
                return True
        except psycopg.OperationalError:
            return False

    def ask(self, sql: str) -> list[tuple[object, ...]]:
        import psycopg

        with psycopg.connect(self.dsn, autocommit=True) as connection:
            cursor = connection.execute(sql.encode())
            return cursor.fetchall() if cursor.description is not None else []

    def stop(self) -> None:
        """As a crash; what was committed is there after the next start."""
        assert self.process is not None
        if self.process.poll() is None:
            self.resume()
            self.process.send_signal(signal.SIGQUIT)
            self.process.wait()

    def close(self) -> None:
        """It is not needed any more."""
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def pause(self) -> None:
        """The server and its sessions stand still."""
        self._signal_all(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal_all(signal.SIGCONT)

    def _signal_all(self, number: int) -> None:
        assert self.process is not None
        parent = str(self.process.pid)
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = stat.read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if fields[1] == parent:
                os.kill(int(stat.parent.name), number)
        self.process.send_signal(number)
