"""The command line on a terminal (a pseudo-terminal): prompts, Ctrl-C as barge-in, leaving."""

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

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator

# An agent that speaks until it is interrupted, in the place of the echo agent.
SPEAKER = """
import sys
import anyio
import micdrop_agent
from micdrop_agent.cli import main

class Speaker(micdrop_agent.EchoAgent):
    async def generate_answer(self, turn):
        if "long" not in turn.conversation[-1].content:
            await turn.write("short\\x1b]0;title\\x07")
            return
        await turn.write("word ")
        await anyio.sleep_forever()

micdrop_agent.EchoAgent = Speaker
sys.exit(main(["chat", "--agent", "echo", *sys.argv[1:]]))
"""
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
        os.write(self.descriptor, text.encode())

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
        return bool(read)


@contextlib.contextmanager
def terminal(*arguments: str, env: dict[str, str] | None = None) -> Generator[Terminal]:
    """Start the speaker on a terminal of its own."""
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
        [sys.executable, "-c", launcher, "-c", SPEAKER, *arguments],
        os.environ | {"TERM": "xterm"} | (env or {}),
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


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_ctrl_c_cuts_the_answer_shows_what_was_kept_and_the_next_turn_works(backend: str) -> None:
    with terminal("--backend", backend) as screen:
        screen.expect("you> ")
        screen.type("long\n")
        screen.expect("word ")
        screen.type("\x03")
        screen.expect(re.escape('interrupted; kept: "word"'))
        screen.expect("first chunk .* · 1 chunk")
        screen.expect("you> ")
        screen.type("again\n")
        screen.expect("short")
        screen.expect("you> ")
        screen.type("\x04")

        assert screen.end() == 0
        assert "Traceback" not in screen.seen


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_ctrl_c_at_the_prompt_leaves_with_0(backend: str) -> None:
    with terminal("--backend", backend) as screen:
        screen.expect("you> ")
        screen.type("half a li\x03")

        assert screen.end() == 0
        assert "Traceback" not in screen.seen


def test_ctrl_c_under_say_ends_with_1() -> None:
    with terminal("--say", "long", "--say", "never said") as screen:
        screen.expect("word ")
        screen.type("\x03")

        assert screen.end() == 1
        assert "micdrop-agent: error: interrupted" in screen.seen
        assert "short" not in screen.seen


def test_figures_are_dim_on_a_terminal() -> None:
    with terminal("--say", "x") as screen:
        assert screen.end() == 0
        assert "\x1b[2mfirst chunk" in screen.seen


def test_no_color_is_respected() -> None:
    with terminal("--say", "x", env={"NO_COLOR": "1"}) as screen:
        assert screen.end() == 0
        assert "\x1b" not in screen.seen


def test_a_model_cannot_send_control_sequences_to_the_terminal() -> None:
    with terminal("--say", "x") as screen:
        assert screen.end() == 0
        assert "short]0;title" in screen.seen
