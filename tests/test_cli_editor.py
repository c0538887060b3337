"""The prompt with line editing on a terminal (a pseudo-terminal): keys, history, pasted text, Ctrl-C at any moment."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest
from pty_support import terminal

if TYPE_CHECKING:
    from pathlib import Path

# Says how long the message is; waits before its first word, and then for ever, if asked to.
LISTENER = """
import sys
import anyio
import micdrop_agent
from micdrop_agent.cli import main

class Listener(micdrop_agent.EchoAgent):
    async def generate_answer(self, turn):
        heard = turn.conversation[-1].content
        if heard == "think":
            await anyio.sleep_forever()
        await turn.write(f"heard {len(heard)} ")
        if heard == "talk":
            await anyio.sleep_forever()

micdrop_agent.EchoAgent = Listener
sys.exit(main(["chat", "--agent", "echo", *sys.argv[1:]]))
"""
PROMPT = "you>"
UP, LEFT = "\x1b[A", "\x1b[D"


def messages(saved: Path) -> list[str]:
    return [item["content"] for item in json.loads(saved.read_text()) if item["role"] == "user"]


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_line_is_edited_with_the_arrows_and_the_history_outlives_the_program(tmp_path: Path, backend: str) -> None:
    saved = tmp_path / "call.json"
    options = ("--transcript", str(saved), "--backend", backend)
    with terminal(*options, program=LISTENER, state=tmp_path, edits=True) as screen:
        screen.expect(PROMPT)
        screen.type(f"tble{LEFT}{LEFT}{LEFT}a\r")
        screen.expect("heard 5")
        screen.expect(PROMPT)
        screen.type("\x04")
        assert screen.end() == 0
    assert messages(saved) == ["table"]

    with terminal(*options, program=LISTENER, state=tmp_path, edits=True) as screen:
        screen.expect(PROMPT)
        screen.type(f"{UP}s\r")
        screen.expect("heard 6")
        screen.expect(PROMPT)
        screen.type("\x04")
        assert screen.end() == 0
    assert messages(saved) == ["tables"]


def test_pasted_lines_are_one_turn_and_a_long_text_is_whole(tmp_path: Path) -> None:
    saved, lines, long = tmp_path / "call.json", "one\ntwo\nthree", "0123456789" * 2000
    with terminal("--transcript", str(saved), program=LISTENER, state=tmp_path, edits=True) as screen:
        for text in (lines, long):
            screen.expect(PROMPT)
            screen.type(f"\x1b[200~{text}\x1b[201~")
            screen.type("\r")
            screen.expect(f"heard {len(text)}")
        screen.expect(PROMPT)
        screen.type("\x04")
        assert screen.end() == 0
    assert messages(saved) == [lines, long]


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_ctrl_c_interrupts_an_answer_at_any_moment_and_leaves_only_when_pressed_twice(
    tmp_path: Path, backend: str
) -> None:
    with terminal("--backend", backend, program=LISTENER, state=tmp_path, edits=True) as screen:
        screen.expect("talking to echo")
        screen.expect(PROMPT)
        screen.type("think\r")
        screen.expect("[⠋⠙⠹]")  # nothing is said yet
        screen.type("\x03")
        screen.expect("interrupted; nothing was kept")
        screen.expect(PROMPT)
        screen.type("talk\r")
        screen.expect("heard 4")
        screen.type("\x03")
        screen.expect(re.escape('interrupted; kept: "heard 4"'))
        screen.expect(PROMPT)
        screen.type("half a li\x03")
        screen.expect("press Ctrl-C again to leave")
        screen.expect(PROMPT)
        screen.type("hi\r")  # another turn: the next Ctrl-C is a first one again
        screen.expect("heard 2")
        screen.expect(PROMPT)
        screen.type("\x03")
        screen.expect("press Ctrl-C again to leave")
        screen.expect(PROMPT)
        screen.type("\x03")

        assert screen.end() == 0
        assert "Traceback" not in screen.seen
