"""The command line on a terminal (a pseudo-terminal): prompts, Ctrl-C as barge-in, leaving."""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING

import pty_support
import pytest
from cli_support import servers
from pty_support import Terminal

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


@contextlib.contextmanager
def terminal(*arguments: str, env: dict[str, str] | None = None, program: str = SPEAKER) -> Generator[Terminal]:
    """Start the speaker, or another program."""
    with pty_support.terminal(*arguments, program=program, env=env) as screen:
        yield screen


PROGRAM = "import sys; from micdrop_agent.cli import main; sys.exit(main())"


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
def test_a_second_ctrl_c_at_the_prompt_leaves_with_0(backend: str) -> None:
    with terminal("--backend", backend) as screen:
        screen.expect("you> ")
        screen.type("half a li\x03")
        screen.expect("press Ctrl-C again to leave")
        screen.expect("you> ")
        screen.type("\x03")

        assert screen.end() == 0
        assert "Traceback" not in screen.seen


def test_keys_that_the_plain_prompt_does_not_know_are_not_sent_to_the_model(tmp_path: Path) -> None:
    saved = tmp_path / "call.json"
    with terminal("--transcript", str(saved)) as screen:
        screen.expect("talking to echo")
        screen.expect("you> ")
        screen.type("a\x1b[D\x1b[1;5Cb\x1bOAc\x1b[200~d\x1b[201~\n")
        screen.expect("short")
        screen.expect("you> ")
        screen.type("\x04")

        assert screen.end() == 0
    assert '"abcd"' in saved.read_text()


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
        screen.type("\x04")
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
