"""Calls, thoughts and tokens of a template that come as text: run or dropped, never spoken; on every kind of agent."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

import pytest

from micdrop_agent import ChatAgent, MistralAgent, OpenaiAgent, Retry, Tool
from micdrop_agent.testing import BACKENDS, ScriptedProvider, parts, run_virtual, say

if TYPE_CHECKING:
    from collections.abc import Callable

    from micdrop_agent.testing import Backend, Exchange, Reply

MAKERS = [OpenaiAgent, ChatAgent, MistralAgent]
CALL = '<tool_call>{"name": "book", "arguments": {"day": "friday"}}</tool_call>'
KIMI = (
    "<|tool_calls_section_begin|><|tool_call_begin|>functions.book:0<|tool_call_argument_begin|>"
    '{"day":"friday"}<|tool_call_end|><|tool_calls_section_end|>'
)


def talk(
    backend: Backend, maker: Callable[..., Any], script: list[Reply], **options: Any
) -> tuple[str, list[str], Any, int]:
    """What was spoken, the days that were booked, the result, and the number of requests."""
    server = ScriptedProvider(script)
    booked: list[str] = []
    book = Tool.from_schema(
        "book",
        "Book.",
        {"type": "object", "properties": {"day": {"type": "string"}}},
        lambda found: booked.append(found["day"]),
    )

    async def scenario() -> tuple[str, Any]:
        retry = Retry(max_retries=0)
        more: dict[str, Any] = {
            "base_url": "http://a.test/v1",
            "api_key": "k",
            "tools": [book],
            "retry": retry,
            **options,
        }
        async with server, maker(connect=server.connect, raise_on_failure=False, **more) as agent:
            agent.add_user_message("Hi.")
            answer = agent.answer()
            spoken = "".join([piece async for piece in answer])
            return spoken, answer.result

    spoken, result = run_virtual(backend, scenario)
    return spoken, booked, result, len(server.requests)


def cut(text: str, size: int) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize("markup", [CALL, KIMI])
@pytest.mark.parametrize("parallel", [True, False])
def test_a_complete_call_that_came_as_text_is_run_once_and_not_spoken(
    backend: Backend, maker: Callable[..., Any], markup: str, parallel: bool
) -> None:
    script = [say(*cut(f"One moment. {markup}", 7)), say("Booked.")]
    spoken, booked, result, requests = talk(backend, maker, script, parallel_tools=parallel)
    assert spoken.replace("  ", " ") == "One moment. Booked."
    assert (booked, requests, result.status) == (["friday"], 2, "completed")


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize(
    ("text", "options"),
    [
        (CALL, {"run_written_calls": False}),
        (CALL.replace("book", "cancel_everything"), {}),
        (CALL[: len(CALL) // 2], {}),
        (CALL, {"tools": []}),
    ],
    ids=["option off", "unknown tool", "half a call", "no tools at all"],
)
def test_any_other_call_in_the_text_is_dropped_with_a_warning(
    backend: Backend,
    maker: Callable[..., Any],
    text: str,
    options: dict[str, Any],
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        spoken, booked, _, requests = talk(backend, maker, [say(f"One moment. {text}")], **options)
    assert spoken.strip() == "One moment."
    assert (booked, requests) == ([], 1)
    if "run_written_calls" not in options:
        assert "taken out of the answer" in caplog.text


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_call_as_text_beside_the_real_one_is_not_run_a_second_time(backend: Backend) -> None:
    script = [
        parts(
            [{"text": [f"One moment. {KIMI}"]}, {"tool": "book", "args": {"day": "friday"}, "id": "c1"}, {"end": True}]
        ),
        say("Booked."),
    ]
    for maker in MAKERS:
        spoken, booked, _, _ = talk(backend, maker, list(script))
        assert spoken.replace("  ", " ") == "One moment. Booked."
        assert booked == ["friday"]


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_response_that_was_nothing_but_a_call_of_no_tool_has_said_nothing(backend: Backend) -> None:
    script = [say(CALL.replace("book", "unknown")), say("Sorry.")]
    spoken, booked, result, requests = talk(backend, ChatAgent, script, retry=Retry(max_retries=1))
    assert (spoken, booked, result.status, requests) == ("Sorry.", [], "completed", 2)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize("token", ["<|im_end|>", "<|eot_id|>", "</s>", "<end_of_turn>"])
def test_a_token_of_the_template_is_not_spoken(backend: Backend, maker: Callable[..., Any], token: str) -> None:
    spoken, _, result, _ = talk(backend, maker, [say(*cut(f"Hello there.{token}", 3))])
    assert spoken == result.text == "Hello there."


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("usage", [None, {"prompt_tokens": 1, "completion_tokens": 2}])
@pytest.mark.parametrize("together", [True, False])
def test_a_call_that_cannot_be_read_is_told_to_the_model(backend: Backend, usage: Any, together: bool) -> None:
    made = {"tool_calls": [{"index": 0, "id": "c1", "function": {"name": "book", "arguments": '{"day": oops'}}]}
    end = {"finish_reason": "tool_calls", "usage": usage}
    choices: list[Any] = [{"delta": made, **end}] if together else [{"delta": made}, {"delta": {}, **end}]

    async def reply(exchange: Exchange) -> None:
        await exchange.head()
        for choice in choices:
            await exchange.send(b"data: %b\n\n" % json.dumps({"choices": [{"index": 0, **choice}]}).encode())
        await exchange.send(b"data: [DONE]\n\n")
        await exchange.end()

    spoken, booked, result, requests = talk(backend, ChatAgent, [reply, say("Which day?")])
    assert (spoken, booked, requests, result.status) == ("Which day?", [], 2, "completed")
    assert result.requests == 2


THOUGHTS = "The user wants the hours.</think>We open at nine."


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("size", [1, 5, 100])
@pytest.mark.parametrize("options", [{"think": "inside"}, {"model": "Qwen/Qwen3-30B-A3B-Thinking-2507"}])
def test_a_text_that_begins_inside_its_thoughts_is_spoken_after_them(
    backend: Backend, size: int, options: dict[str, Any]
) -> None:
    spoken, _, _, _ = talk(backend, ChatAgent, [say(*cut(THOUGHTS, size))], **options)
    assert spoken == "We open at nine."


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_answer_whose_thoughts_the_server_took_out_is_not_lost(backend: Backend) -> None:
    spoken, _, result, _ = talk(backend, ChatAgent, [say("We open ", "at nine.")], think="inside")
    assert (spoken, result.status) == ("We open at nine.", "completed")
    apart: list[dict[str, Any]] = [{"raw_delta": {"reasoning_content": "Hm."}}, {"text": ["We open ", "at nine."]}]
    spoken, _, _, _ = talk(backend, ChatAgent, [parts([*apart, {"end": True}])], think="inside")
    assert spoken == "We open at nine."


@pytest.mark.parametrize("backend", BACKENDS)
def test_thoughts_that_were_cut_are_not_spoken(backend: Backend) -> None:
    script = [parts([{"text": ["The user wants"]}, {"finish": "length"}, {"end": True}])]
    spoken, _, result, _ = talk(backend, ChatAgent, script, think="inside")
    assert (spoken, result.status) == ("", "failed")


def test_thoughts_that_were_spoken_for_want_of_an_option_are_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        talk("asyncio", ChatAgent, [say(THOUGHTS)])
    assert caplog.text.count('think="inside"') == 1
