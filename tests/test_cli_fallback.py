"""Chains of agents on the command line: ``--fallback``, and the demo of a failover."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import attrs
import pytest
from cli_support import NOBODY, run, servers

from micdrop_agent.cli import _demo, main
from micdrop_agent.cli._faults import FAULTS
from micdrop_agent.cli._spec import AgentSpec
from micdrop_agent.testing import BACKENDS, fault, parts, say

if TYPE_CHECKING:
    from pathlib import Path

WELL = say("a time ", "there was a sea.")
CUT = parts([{"text": ["Once upon "]}, {"text": ["a time "]}, {"wait_ms": 50}, {"cut": "eof"}])


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "MISTRAL_API_KEY"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("local", AgentSpec("local")),
        ("local:/models/a:b.gguf", AgentSpec("local", "/models/a:b.gguf")),
        ("openai:gpt-4o", AgentSpec("openai", "gpt-4o")),
        ("openai@http://h/v1", AgentSpec("openai", None, "http://h/v1")),
        ("chat:qwen3:4b@http://h:1/v1", AgentSpec("chat", "qwen3:4b", "http://h:1/v1")),
        ("chat:@cf/m@https://u:p@h/v1,key=K", AgentSpec("chat", "@cf/m", "https://u:p@h/v1", "K")),
        ("mistral,key=MINE", AgentSpec("mistral", None, None, "MINE")),
    ],
)
def test_an_agent_is_one_word_and_reads_back_without_its_password(text: str, spec: AgentSpec) -> None:
    assert AgentSpec.parse(text) == spec
    assert str(spec) == text.replace("u:p@", "…@")
    assert "u:p" not in repr(spec)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_switch_is_one_line_on_stderr_and_the_sentence_on_a_pipe_stays_whole(
    backend: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with servers([CUT], [WELL]) as (first, second):
        code = main(
            ["chat", "--agent", f"chat:a@{first}", "--fallback", f"chat:b@{second}", "--say", "x", "--backend", backend]
        )
    out, err = capfd.readouterr()

    assert code == 0
    assert out == "Once upon a time there was a sea.\n"
    switch, figures = err.splitlines()
    assert switch.startswith("switched from chat:a to chat:b: the connection was closed")
    assert figures.startswith("first chunk ")


def test_who_answered_goes_on_answering_and_the_json_has_each_text_once(capfd: pytest.CaptureFixture[str]) -> None:
    with servers([say("Good day.")]) as (url,):
        code = main(
            ["chat", "--agent", f"chat:a@{NOBODY}", "--fallback", f"chat:b@{url}", "--json", "--say", "1", "--say", "2"]
        )
    out, err = capfd.readouterr()

    assert code == 0
    assert [item["content"] for item in json.loads(out)[1:]] == ["1", "Good day.", "2", "Good day."]
    assert err.count("switched from ") == 1


def test_an_agent_that_cannot_be_made_is_left_out_with_a_note(capfd: pytest.CaptureFixture[str]) -> None:
    code = main(["chat", "--agent", "openai", "--fallback", "mistral", "--fallback", "echo", "--say", "x"])
    out, err = capfd.readouterr()

    assert (code, out) == (0, 'You said: "x"\n')
    assert err.splitlines()[0].startswith("openai is left out: no API key for openai: set OPENAI_API_KEY")
    assert err.splitlines()[1].startswith("mistral is left out: ")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--agent", "openai", "--fallback", "mistral"], "OPENAI_API_KEY"),
        (["--agent", f"chat:a@{NOBODY}", "--fallback", f"chat:b@{NOBODY}"], "all 2 agents failed"),
    ],
)
def test_when_none_can_answer_the_last_line_says_why(
    arguments: list[str], reason: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["chat", *arguments, "--say", "x"]) == 1
    out, err = capfd.readouterr()
    last = err.splitlines()[-1]

    assert out == ""
    assert last.startswith("micdrop-agent: error: ")
    assert reason in last


def test_two_agents_of_one_name_are_told_apart(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["chat", "--agent", f"chat:a@{NOBODY}", "--fallback", f"chat:a@{NOBODY}", "--say", "x"]) == 1

    assert "switched from chat:a to chat:a #2: " in capfd.readouterr().err


def test_silence_is_a_failure_after_the_time_that_was_given(capfd: pytest.CaptureFixture[str]) -> None:
    with servers([fault("stall_after_headers")], [say("Here.")]) as (first, second):
        chain = ["--agent", f"chat:a@{first}", "--fallback", f"chat:b@{second}", "--first-chunk-timeout", "0.2"]
        assert main(["chat", *chain, "--say", "x"]) == 0
    out, err = capfd.readouterr()

    assert out == "Here.\n"
    assert "0.2 seconds" in err.splitlines()[0]


def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """The demo without the pauses that let one watch."""

    def hurried(script: tuple[dict[str, object], ...] | None) -> tuple[dict[str, object], ...] | None:
        return None if script is None else tuple(part for part in script if "after_ms" not in part)

    faults = {name: attrs.evolve(value, parts=hurried(value.parts)) for name, value in FAULTS.items()}  # type: ignore[arg-type]
    monkeypatch.setattr(_demo, "FAULTS", faults)
    monkeypatch.setattr(_demo, "spoken", lambda *pieces: tuple({"text": [piece]} for piece in pieces))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", FAULTS)
def test_the_demo_says_the_whole_answer_once_whatever_the_first_server_does(
    name: str, backend: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    _quick(monkeypatch)

    code = main(["demo", "failover", "--fault", name, "--timeout", "0.3", "--backend", backend])
    out, err = capfd.readouterr()

    assert (code, err) == (0, "")
    assert "heard:          Our pool opens at seven and closes at ten.\n" in out
    assert "stored:         the same, as one message" in out
    assert ("switch from first to second: " in out) == (name != "none")


def test_the_demo_writes_its_trace(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    _quick(monkeypatch)
    file = tmp_path / "trace.html"

    assert main(["demo", "failover", "--trace", str(file)]) == 0
    assert f"the trace of 1 answer is in {file}" in capfd.readouterr().out
    assert "Our pool opens at seven and closes at ten." in file.read_text()


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_demo_ends_with_one_line_when_its_output_cannot_be_written(backend: str) -> None:
    full = "import os; os.dup2(os.open('/dev/full', os.O_WRONLY), 1)"
    done = run("demo", "failover", "--fault", "refuse", "--backend", backend, before=full)

    assert done.returncode == 1
    assert done.stderr == "micdrop-agent: error: cannot write the output: No space left on device\n"
