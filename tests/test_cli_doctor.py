"""``micdrop-agent doctor``: what it finds, what it advises, and what it never shows."""

from __future__ import annotations

import re

import pytest
from cli_support import NOBODY, servers

from micdrop_agent._extras import install_command
from micdrop_agent.cli import _findings, main
from micdrop_agent.testing import BACKENDS, fault, parts, say

SECRET = "sk-very-secret-1234567890"


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without keys and without the local model."""
    for name in ("OPENAI_API_KEY", "MISTRAL_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    installed = _findings._installed
    monkeypatch.setattr(_findings, "_installed", lambda module: module != "xllamacpp" and installed(module))


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_agent_that_answers_is_measured_and_its_answer_is_left_at_once(
    backend: str, capfd: pytest.CaptureFixture[str]
) -> None:
    endless = parts([{"text": ["ready "]}, {"silence": True}])
    with servers([endless]) as (url,):
        code = main(["doctor", f"chat:m@{url}", "--backend", backend])
    out, err = capfd.readouterr()

    assert (code, err) == (0, "")
    assert re.search(r"ok +chat:m: first chunk after \d+ ms\n", out)
    assert f"1 of 1 can answer; try: micdrop-agent chat --agent chat:m@{url}" in out


def test_a_machine_with_nothing_ends_with_1_and_says_how_to_begin(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 1
    out = capfd.readouterr().out

    assert f"not installed: llama.cpp in the process, for the agent local\n          {install_command('local')}" in out
    assert "OPENAI_API_KEY is not set\n          export OPENAI_API_KEY=…" in out
    assert "no agent is set up" in out
    assert "no agent can answer" in out


@pytest.mark.parametrize(
    ("reply", "advice"),
    [
        (fault("status", status=401), "the server refuses the key in OPENAI_API_KEY"),
        (fault("status", status=404), "look at the name of the model"),
        (fault("status", status=402), "no credit left"),
        (fault("status", status=429), "too many requests"),
        (fault("stall_after_headers"), "try again, or with --timeout 60"),
        (fault("status", status=500), "HTTP 500"),
        (parts([{"finish": "stop"}]), "FAILED"),
    ],
)
def test_each_failure_comes_with_what_to_do(
    reply: object, advice: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    with servers([reply]) as (url,):  # type: ignore[list-item]
        code = main(["doctor", f"openai@{url}", "--timeout", "0.3"])
    out, err = capfd.readouterr()

    assert code == 1
    assert "FAILED" in out
    assert advice in out
    assert SECRET not in out + err


def test_a_server_that_is_down_comes_with_the_command_that_asks_it(capfd: pytest.CaptureFixture[str]) -> None:
    with servers([say("ready")]) as (url,):
        code = main(["doctor", f"chat:m@{NOBODY}", f"chat:n@{url}"])
    out = capfd.readouterr().out

    assert code == 0
    assert f"curl {NOBODY}/models" in out
    assert "1 of 2 can answer" in out


def test_keys_and_passwords_are_never_shown(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    monkeypatch.setenv("MINE", SECRET)
    with servers([say("ready")]) as (url,):
        withpassword = url.replace("//", "//user:hidden@")
        assert main(["doctor", f"chat:m@{withpassword},key=MINE", f"openai@{NOBODY}", "mistral"]) == 0
    out, err = capfd.readouterr()

    assert "OPENAI_API_KEY is set" in out
    assert "set MISTRAL_API_KEY" in out
    assert SECRET not in out + err
    assert "hidden" not in out + err
