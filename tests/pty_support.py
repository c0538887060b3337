"""A program on a pseudo-terminal, seen by a person who types."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import select
import signal
import sys
import termios
from typing import TYPE_CHECKING

from cli_support import clean_environment

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

PLAIN = "import sys; sys.modules['prompt_toolkit'] = None\n"
"""As where the extra ``chat`` is not installed."""
PATIENCE = 30.0
"""Seconds after which a test gives up on the program; it normally answers in a tenth of one."""


class Terminal:
    """The program's terminal, seen by a person who types."""

    def __init__(self, child: int, descriptor: int) -> None:
        self.child = child
        self.descriptor = descriptor
        self.seen = ""
        self._looked = 0

    def expect(self, pattern: str) -> str:
        """Wait until ``pattern`` shows up behind what was expected before."""
        while True:
            found = re.search(pattern, self.seen[self._looked :])
            if found is not None:
                self._looked += found.end()
                return found.group()
            assert self._read(), f"no {pattern!r} in {self.seen!r}"

    def type(self, text: str) -> None:
        """Type, or paste; what is shown meanwhile is read, or the terminal would take no more."""
        left = text.encode()
        while left:
            ready, writable, _ = select.select([self.descriptor], [self.descriptor], [], PATIENCE)
            if ready:
                self._read()
            elif writable:
                left = left[os.write(self.descriptor, left[:512]) :]

    def end(self) -> int:
        """Wait until the program has ended; its exit code."""
        while self._read():
            pass
        _, status = os.waitpid(self.child, 0)
        self.child = 0
        return os.waitstatus_to_exitcode(status)

    def _read(self) -> bool:
        ready, _, _ = select.select([self.descriptor], [], [], PATIENCE)
        assert ready, f"the program hangs; seen so far: {self.seen!r}"
        try:
            read = os.read(self.descriptor, 4096)
        except OSError:  # Linux says EIO when the other side is closed
            return False
        self.seen += read.decode(errors="replace")
        if b"\x1b[6n" in read:  # "where is the cursor?"
            os.write(self.descriptor, b"\x1b[1;1R")
        return bool(read)


@contextlib.contextmanager
def terminal(
    *arguments: str,
    program: str,
    env: dict[str, str] | None = None,
    state: Path | None = None,
    edits: bool = False,
) -> Generator[Terminal]:
    """Start a program on a terminal of its own.

    Args:
        arguments: Of the program.
        program: Python source.
        env: More of the environment.
        state: Where it keeps its history.
        edits: Whether the extra ``chat`` is installed for it.
    """
    # Not pty.fork(): the child runs nothing but exec, whatever threads this process has.
    parent, child_side = pty.openpty()
    attributes = termios.tcgetattr(child_side)
    attributes[3] &= ~termios.ECHO
    termios.tcsetattr(child_side, termios.TCSANOW, attributes)
    # A new session whose first terminal becomes its controlling one, so that Ctrl-C is a signal.
    launcher = (
        "import fcntl, os, sys, termios; os.setsid(); fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
        "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
    )
    child = os.posix_spawn(
        sys.executable,
        [sys.executable, "-c", launcher, "-c", program if edits else PLAIN + program, *arguments],
        clean_environment()
        | {"TERM": "xterm"}
        | ({} if state is None else {"XDG_STATE_HOME": str(state)})
        | (env or {}),
        file_actions=[(os.POSIX_SPAWN_DUP2, child_side, number) for number in (0, 1, 2)],
    )
    os.close(child_side)
    screen = Terminal(child, parent)
    try:
        yield screen
    finally:
        os.close(parent)
        if screen.child:
            os.kill(screen.child, signal.SIGKILL)
            os.waitpid(screen.child, 0)
