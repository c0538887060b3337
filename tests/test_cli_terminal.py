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
from cli_support import clean_environment, servers

from micdrop_agent.testing import fault, parts, say

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

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
PROGRAM = "import sys; from micdrop_agent.cli import main; sys.exit(main())"
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
def terminal(*arguments: str, env: dict[str, str] | None = None, program: str = SPEAKER) -> Generator[Terminal]:
    """Start the speaker, or another program, on a terminal of its own."""
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
        [sys.executable, "-c", launcher, "-c", program, *arguments],
        clean_environment() | {"TERM": "xterm"} | (env or {}),
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


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_switch_in_mid_sentence_is_a_dim_line_of_its_own(backend: str) -> None:
    cut = parts([{"text": ["Once upon "]}, {"wait_ms": 100}, {"cut": "eof"}])
    with servers([cut], [say("a time.")]) as (first, second):
        chain = ("chat", "--agent", f"chat:a@{first}", "--fallback", f"chat:b@{second}", "--backend", backend)
        with terminal(*chain, program=PROGRAM) as screen:
            screen.expect("you> ")
            screen.type("a story\n")
            screen.expect(r"Once upon \r\n\x1b\[2mswitched from chat:a to chat:b: [^\r]*\x1b\[0m\r\na time\.\r\n")
            screen.expect("you> ")
            screen.type("\x04")

            assert screen.end() == 0


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("command", ["demo", "doctor"])
def test_ctrl_c_ends_every_command_with_one_line(command: str, backend: str) -> None:
    with servers([fault("stall_after_headers")]) as (url,):
        words = {
            "demo": ("demo", "failover", "--fault", "silent", "--timeout", "100", "--backend", backend),
            "doctor": ("doctor", f"chat:m@{url}", "--timeout", "100", "--backend", backend),
        }
        with terminal(*words[command], program=PROGRAM) as screen:
            screen.expect("When is the pool open|up to the first chunk:")
            screen.type("\x03")

            assert screen.end() == 1
            assert screen.seen.endswith("micdrop-agent: error: interrupted\r\n")
            assert "Traceback" not in screen.seen


def test_a_call_that_is_left_with_ctrl_c_is_stored_and_traced(tmp_path: Path) -> None:
    store, trace = tmp_path / "calls.db", tmp_path / "trace.html"
    with terminal("--store", str(store), "--call", "a", "--trace", str(trace)) as screen:
        screen.expect("call a is new")
        screen.expect("you> ")
        screen.type("long\n")
        screen.expect("word ")
        screen.type("\x03")
        screen.expect("interrupted; kept")
        screen.expect("you> ")
        screen.type("\x03")
        screen.expect("the trace of 1 answer is in ")

        assert screen.end() == 0
    with terminal("show", str(store), "a", program=PROGRAM, env={"NO_COLOR": "1"}) as screen:
        assert screen.end() == 0
        assert "agent   word  [interrupted]" in screen.seen
        assert "\x1b" not in screen.seen
    assert "1 cancelled" in trace.read_text()


@pytest.mark.parametrize(("env", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)])
def test_the_demo_has_colours_only_where_they_are_wanted(env: dict[str, str], coloured: bool) -> None:
    with terminal("demo", "failover", "--fault", "refuse", program=PROGRAM, env=env) as screen:
        assert screen.end() == 0
        assert ("\x1b[" in screen.seen) == coloured
