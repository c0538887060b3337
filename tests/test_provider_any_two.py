"""Fallback between any two agents, removal of a tool, resume by a third: every request is one that its server takes.

What a server attaches has its host in it, so that whatever reaches another server shows.
"""

from __future__ import annotations

import itertools
import json
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import strict_block_rules
import strict_rules
from hypothesis import given, settings
from hypothesis import strategies as st

from micdrop_agent import (
    AnthropicAgent,
    ChatAgent,
    FallbackAgent,
    GeminiAgent,
    MistralAgent,
    OpenaiAgent,
    Retry,
    Tool,
)
from micdrop_agent.providers.quirks import OPENAI
from micdrop_agent.testing import BACKENDS, ScriptedProvider, run_virtual
from micdrop_agent.testing._block_writers import ClaudeWriter, GeminiWriter
from micdrop_agent.testing._writers import ChatWriter, ResponsesWriter, event

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from micdrop_agent.testing import Backend, Exchange, Reply

STRICT = OPENAI.__class__(call_ids="at most 40")
KINDS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "openai_responses": (OpenaiAgent, {}),
    "openai_chat": (ChatAgent, {"quirks": STRICT}),
    "template": (ChatAgent, {"quirks": STRICT, "dialect": "template"}),
    "mistral": (MistralAgent, {}),
    "claude": (AnthropicAgent, {"cache": False}),
    "gemini": (GeminiAgent, {}),
}
RULES = {**strict_rules.RULES, **strict_block_rules.RULES}
OWN = {"reasoning", "reasoning_content", "extra_content", "phase"}
"""Members that the servers of this file attach, and that the rules do not know."""

IDS = ["c1", "call_" + "x" * 30, "functions.look:0", "é/1", ""]
CALL = st.tuples(st.sampled_from(["look", "free", "gone"]), st.sampled_from(IDS))
RESPONSE = st.tuples(st.sampled_from(["", "One moment.", "So. "]), st.lists(CALL, max_size=2))


def thought_of(kind: str, host: str) -> bytes:
    """What the server of a kind attaches to what follows."""
    mark = f"from {host}"
    if kind == "claude":
        return ClaudeWriter().thought(mark, mark)
    if kind in {"openai_chat", "template"}:
        return ChatWriter().raw({"reasoning": mark})
    if kind == "openai_responses":
        item = {"type": "reasoning", "id": f"rs {host}", "summary": [], "encrypted_content": mark}
        return event({"type": "response.output_item.done", "output_index": 90, "item": item})
    return b""


def stream_of(kind: str, host: str, text: str, calls: Sequence[tuple[str, str]]) -> bytes:
    writer: Any = (
        ResponsesWriter()
        if kind == "openai_responses"
        else {"claude": ClaudeWriter, "gemini": GeminiWriter}.get(kind, ChatWriter)()
    )
    out: bytes = thought_of(kind, host) + (writer.text(text) + writer.text_done() if text else b"")
    if isinstance(writer, GeminiWriter):
        parts: list[dict[str, Any]] = [{"functionCall": {"name": name, "args": {}}} for name, _ in calls]
        for part in parts[:1]:
            part["thoughtSignature"] = f"from {host}"
        chunk: bytes = writer.parts(parts) + writer.done()
        return out + chunk
    for name, call_id in calls:
        out += writer.calls([(call_id, name, "{}")])
    if not (text or calls):
        out += writer.text("Hm.")
    end: bytes = writer.done()
    return out + end


def reply(kind: str, host: str, text: str, calls: Sequence[tuple[str, str]]) -> Reply:
    async def answer(exchange: Exchange) -> None:
        await exchange.head()
        await exchange.send(stream_of(kind, host, text, calls))
        await exchange.end()

    return answer


async def fails(exchange: Exchange) -> None:
    await exchange.head(500)
    await exchange.end()


def tools() -> list[Tool]:
    labels = {"type": "object", "additionalProperties": {"type": "string"}}
    free = {"type": "object", "properties": {"labels": labels}}
    return [
        Tool(name="look", description="Look.", execute=lambda: "sun"),
        Tool.from_schema("free", "Free.", free, lambda _: {"error": "x"}),
        Tool(name="gone", description="Soon gone.", execute=lambda: None),
    ]


def make(kind: str, host: str, server: ScriptedProvider) -> Any:
    maker, options = KINDS[kind]
    return maker(
        base_url=f"http://{host}/v1",
        api_key="k",
        connect=server.connect,
        retry=Retry(max_retries=0),
        system_prompt="Be kind.",
        **options,
    )


def without_own(value: Any) -> Any:
    """``value`` without what the rules do not know and the server itself has sent."""
    if isinstance(value, list):
        return [without_own(each) for each in value if not (isinstance(each, dict) and each.get("type") == "reasoning")]
    if isinstance(value, dict):
        return {name: without_own(each) for name, each in value.items() if name not in OWN}
    return value


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("first", "second"), list(itertools.product(KINDS, KINDS)))
@settings(max_examples=3)
@given(one=st.lists(RESPONSE, min_size=1, max_size=2), two=st.lists(RESPONSE, max_size=2))
def test_every_request_is_one_that_its_server_takes(
    backend: Backend, first: str, second: str, one: list[Any], two: list[Any]
) -> None:
    hosts = {"a.test": first, "b.test": second, "c.test": first}
    script: dict[str, list[Reply]] = {
        "a.test": [*(reply(first, "a.test", *response) for response in one), fails],
        "b.test": [*(reply(second, "b.test", *response) for response in two), reply(second, "b.test", "Fine.", [])],
        "c.test": [reply(first, "c.test", "Bye.", [])],
    }
    server = ScriptedProvider(script)

    async def scenario() -> None:
        async with server:
            factories = [partial(make, hosts[host], host, server) for host in ("a.test", "b.test")]
            offered = tools()
            async with FallbackAgent(factories, tools=offered, raise_on_failure=False) as agent:
                for turn in range(3):
                    agent.add_user_message(f"Turn {turn}?")
                    await agent.answer().wait()
                    if turn == 0:
                        agent.remove_tool("gone")
                items = list(agent.conversation)
            third = make(first, "c.test", server)
            async with third:
                third.conversation.replace(items)
                third.add_user_message("Still there?")
                await third.answer().wait()

    run_virtual(backend, scenario)
    assert {request.host for request in server.requests} >= {"a.test", "c.test"}
    for request in server.requests:
        text = json.dumps(request.body)
        for other in set(hosts) - {request.host}:
            assert f"from {other}" not in text
        body = without_own(request.body)
        assert RULES[hosts[request.host]](body) == [], body


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "mistral"])
def test_what_these_servers_attach_goes_back_to_them(kind: str) -> None:
    script = [reply(kind, "a.test", "One moment.", [("look", "c1")]), reply(kind, "a.test", "Fine.", [])]
    server = ScriptedProvider(script)

    async def scenario() -> None:
        async with server, make(kind, "a.test", server) as agent:
            agent.add_tool(tools()[0])
            agent.add_user_message("Hi.")
            await agent.answer().wait()

    run_virtual("asyncio", scenario)
    assert ["from a.test" in json.dumps(request.body) for request in server.requests] == [False, True]
