"""Every example runs as its reader would run it, on both event loops where it leaves the choice open."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
BACKENDS = ("asyncio", "trio")

SHOWS = {
    "asyncio_app": ['call 1: You said: "Can you hear me?"', 'call 2: You said: "I would like a table for two."'],
    "custom_agent": ['You said: "Is there a pool?"', "You asked: Is there a pool? Good question."],
    "extraction": ["spoken: 'I am sorry to'\nspoken: ' hear that.'", "'mood': 'upset'", "language: de"],
    "fallback_health": ["call 1: waited for the first model", "call 2: answered at once", "first model: open"],
    "tools_sqlite": ["expected a whole number", "'status': 'taken'", "[(1, 'friday', 'Ada'), (2, 'friday', 'Grace')]"],
    "trio_app": ["On weekdays we are open", "'interrupted': True", "On Sunday we are closed."],
    "wake_word": ['Robin:  You said: "Robin, what is the time?"', "Robin:  Yes?", "(skipped)"],
}
"""What each of them has to print, among other things."""

FAILURES = {
    "ok": ["status=completed"],
    "refuse": ["[first -> second: cannot connect", "The pool is open from seven to ten."],
    "500": ["[first -> second: chat answered HTTP 500", "The pool is open from seven to ten."],
    "429": ["[first -> second: chat answered HTTP 429", "The pool is open from seven to ten."],
    "silent": ["no output within 1.0 seconds", "The pool is open from seven to ten."],
    "cut": ["Our pool opens at seven and closes at ten.'"],
}


def _run(name: str, *arguments: str, said: str | None = None) -> str:
    """Run an example with every warning as an error; returns what it printed."""
    command = [sys.executable, "-W", "error", str(EXAMPLES / f"{name}.py"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, input=said)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    return done.stdout


def _backends(name: str) -> list[tuple[str, ...]]:
    text = (EXAMPLES / f"{name}.py").read_text(encoding="utf-8")
    return [("--backend", backend) for backend in BACKENDS] if '"--backend"' in text else [()]


@pytest.mark.parametrize(
    ("name", "arguments"), [(name, arguments) for name in SHOWS for arguments in _backends(name)], ids=str
)
def test_each_example_runs_and_shows_what_it_is_about(name: str, arguments: tuple[str, ...]) -> None:
    printed = _run(name, *arguments)

    assert [text for text in SHOWS[name] if text not in printed] == [], printed


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("first", FAILURES)
def test_the_failover_demo_answers_whatever_the_first_server_does(first: str, backend: str) -> None:
    printed = _run("live_failover", "--first", first, "--backend", backend)

    assert [text for text in FAILURES[first] if text not in printed] == [], printed


@pytest.mark.parametrize("after", ["restart", "stop"])
def test_the_failover_demo_shows_the_other_ways_to_go_on_after_a_cut(after: str) -> None:
    printed = _run("live_failover", "--first", "cut", "--after", after)

    assert ("starts again" if after == "restart" else "the answer failed") in printed


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_terminal_chat_answers_what_is_typed_and_is_interrupted_by_the_next_line(backend: str) -> None:
    printed = _run("terminal_chat", "--backend", backend, said="a long story\nstop\n")

    assert "You said: stop" in printed


def test_every_example_is_run_here() -> None:
    programs = {path.stem for path in EXAMPLES.glob("*.py")}

    assert programs == {*SHOWS, "live_failover", "terminal_chat"}


def test_the_docs_name_every_example() -> None:
    page = (EXAMPLES.parent / "docs" / "examples.md").read_text(encoding="utf-8")

    assert [path.stem for path in EXAMPLES.glob("*.py") if not re.search(rf"\b{path.stem}\b", page)] == []
