"""Mistakes made on purpose: each message says what was wrong and what to do."""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Any

import anyio
import httpx
import httpx2
import pytest
from anyio.from_thread import BlockingPortal

from micdrop_agent import Answer, ChatAgent, EchoAgent, FallbackAgent, OpenaiAgent, ProviderError, Tool
from micdrop_agent.cli._spec import AgentSpec
from micdrop_agent.testing import BACKENDS, ScriptedProvider, fault, run_virtual
from micdrop_agent.transport import choose

if TYPE_CHECKING:
    from micdrop_agent.testing import Backend

NEAR: list[tuple[Any, dict[str, Any], str]] = [
    (EchoAgent, {"sytem_prompt": "x"}, "no option 'sytem_prompt'; did you mean 'system_prompt'?"),
    (FallbackAgent, {"factories": [EchoAgent], "first_chunk_timout": 1}, "did you mean 'first_chunk_timeout'?"),
    (OpenaiAgent, {"api_key": "k", "temperature": 0.2}, "settings={'temperature': …}"),
    (OpenaiAgent, {"max_tokens": 100}, "settings={'max_tokens': …}"),
    (OpenaiAgent, {"instructions": "x"}, "write system_prompt=…"),
    (EchoAgent, {"prompt": "x"}, "write system_prompt=…"),
    (OpenaiAgent, {"max_retries": 2}, "write retry=Retry(max_retries=…)"),
    (OpenaiAgent, {"timeout": 3.0}, "write timeouts=Timeouts(total=…)"),
    (OpenaiAgent, {"functions": []}, "write tools=[…]"),
    (ChatAgent, {"url": "http://localhost/v1", "model": "m"}, "write base_url=…"),
    (FallbackAgent, {"factories": [EchoAgent], "system_prompt": "x"}, "[lambda: OpenaiAgent(system_prompt=…)]"),
    (FallbackAgent, {"factories": [EchoAgent], "instructions": "x"}, "[lambda: OpenaiAgent(system_prompt=…)]"),
]


@pytest.mark.parametrize(("kind", "options", "words"), NEAR)
def test_an_unknown_option_names_the_nearest_one_or_where_it_belongs(
    kind: Any, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(TypeError, match=re.escape(words)):
        kind(**options)


@pytest.mark.parametrize(
    ("url", "meant"),
    [
        ("localhost:11434/v1", "did you mean http://localhost:11434/v1 ?"),
        ("127.0.0.1:8080", "did you mean http://127.0.0.1:8080 ?"),
        ("api.example.com/v1", "did you mean https://api.example.com/v1 ?"),
        ("user:secret@host/v1", "must begin with http:// or https://"),
        ("ftp://host/v1", "must begin with http:// or https://"),
    ],
)
def test_a_base_url_without_a_scheme_is_refused_with_the_one_that_was_meant(url: str, meant: str) -> None:
    with pytest.raises(ValueError, match=re.escape(meant)) as raised:
        ChatAgent(base_url=url, model="m", api_key="k")

    assert "secret" not in str(raised.value)


@pytest.mark.parametrize(
    ("base_url", "asked", "hint"),
    [
        ("http://server:80", "http://server/chat/completions", True),
        ("http://me:secret@server/v1?key=secret", "http://server/v1/chat/completions", False),
    ],
)
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_404_says_which_url_was_asked(backend: Backend, base_url: str, asked: str, hint: bool) -> None:
    async def main() -> str:
        async with (
            ScriptedProvider([fault("status", status=404)]) as provider,
            ChatAgent(base_url=base_url, model="m", api_key="k", connect=provider.connect) as agent,
        ):
            agent.add_user_message("Hello?")
            with pytest.raises(ProviderError) as raised:
                await anext(agent.answer())
            assert raised.value.kind == "not_found"
            return str(raised.value)

    said = run_virtual(backend, main)

    assert f"(asked {asked}: look at base_url" in said
    assert ("ends in /v1" in said) == hint
    assert "secret" not in said


def test_a_tool_without_a_description_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    def undescribed(x: int) -> int:
        return x

    with caplog.at_level(logging.WARNING, "micdrop_agent.tools"):
        for _ in range(2):
            Tool(name="undescribed_for_the_test", execute=undescribed)
        Tool(name="well_known", description="Does it.", execute=undescribed)

    said = [record.getMessage().split(",")[0] for record in caplog.records]
    assert said == ["the tool 'undescribed_for_the_test' has no description"]


def test_a_client_of_httpx_is_advised_against_once_and_one_of_httpx2_is_not(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choose, "_advised", [])
    options: dict[str, Any] = {"base_url": "http://server/v1", "model": "m"}

    with caplog.at_level(logging.WARNING, "micdrop_agent.transport"):
        ChatAgent(client=httpx2.AsyncClient(), **options)
        assert caplog.records == []
        ChatAgent(client=httpx.AsyncClient(), **options)
        ChatAgent(client=httpx.AsyncClient(), **options)

    assert [record.getMessage().split(":")[0] for record in caplog.records] == ["the client is an httpx.AsyncClient"]
    assert "httpx2.AsyncClient" in caplog.records[0].getMessage()


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_answer_that_is_awaited_says_what_to_await(backend: Backend) -> None:
    async def scenario() -> None:
        async with EchoAgent() as agent:
            agent.add_user_message("Hello!")
            answer: Any = agent.answer()
            with pytest.raises(TypeError, match=r"use 'await answer\.wait\(\)'"):
                await answer
            assert (await answer.wait()).text == 'You said: "Hello!"'

    run_virtual(backend, scenario)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_portal_and_a_hook_may_hand_an_answer_on(backend: Backend) -> None:
    """They await what can be awaited."""

    async def scenario() -> None:
        async with EchoAgent() as agent:
            agent.add_user_message("Hello!")
            async with BlockingPortal() as portal:
                answer = await anyio.to_thread.run_sync(portal.call, agent.answer)
                assert isinstance(answer, Answer)
                assert (await answer.wait()).text == 'You said: "Hello!"'

    anyio.run(scenario, backend=backend)


@pytest.mark.parametrize("method", ["append", "extend", "insert", "pop", "remove", "clear"])
def test_a_conversation_is_no_list_and_says_who_changes_it(method: str) -> None:
    conversation: Any = EchoAgent().conversation

    with pytest.raises(AttributeError, match=rf"no {method}\(\).*agent\.add_user_message"):
        getattr(conversation, method)
    assert [item.role for item in conversation] == ["system"]
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = conversation.nothing


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("gpt-4o", "openai:gpt-4o"),
        ("o3-mini", "openai:o3-mini"),
        ("claude-haiku-5-5", "anthropic:claude-haiku-5-5"),
        ("claude:haiku", "anthropic:haiku"),
        ("gemini-3-flash", "gemini:gemini-3-flash"),
        ("google", "gemini:MODEL"),
        ("mistral-large-latest", "mistral:mistral-large-latest"),
        ("ollama:llama3", "chat:llama3@http://localhost:11434/v1"),
        ("lmstudio", "chat:MODEL@http://localhost:1234/v1"),
        ("opnai:gpt-4o", "openai:gpt-4o"),
        ("opnai", "openai"),
    ],
)
def test_a_model_or_a_server_in_place_of_an_agent_says_how_it_is_written(written: str, meant: str) -> None:
    with pytest.raises(ValueError, match=re.escape(f"did you mean {meant} ?")):
        AgentSpec.parse(written)


def test_what_nobody_can_guess_is_answered_with_what_there_is() -> None:
    with pytest.raises(ValueError, match="'zzz' is not an agent; there are local, openai"):
        AgentSpec.parse("zzz")
