from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from micdrop_agent import Agent, ChatAgent, FallbackAgent, Message, ToolCall, ToolResult
from micdrop_agent.model.budget import PER_ITEM, TokenBudget, estimate_tokens
from micdrop_agent.testing import BACKENDS, Backend, ScriptedProvider, run_virtual, say

if TYPE_CHECKING:
    from collections.abc import Sequence

    from micdrop_agent import Item

SYSTEM = Message("system", "Be brief.")


def words(text: str) -> int:
    return len(text.split())


def turn(number: int) -> list[Item]:
    return [Message("user", f"question {number}"), Message("assistant", f"answer {number}")]


def conversation(turns: int) -> list[Item]:
    return [SYSTEM, *(item for number in range(turns) for item in turn(number))]


TURN = 2 * (PER_ITEM + 2)
HEAD = PER_ITEM + 2


def test_a_conversation_within_the_budget_is_sent_as_it_is() -> None:
    items = conversation(3)
    assert TokenBudget(HEAD + 3 * TURN, words).trim(items) is items


def test_the_oldest_turns_are_left_out_whole() -> None:
    items = conversation(10)
    assert TokenBudget(HEAD + 9 * TURN, words).trim(items) == [SYSTEM, *items[-12:]]


def test_the_beginning_stays_the_same_until_the_budget_is_full_again() -> None:
    budget = TokenBudget(100, words)
    items = conversation(0)
    starts: list[Item] = []
    for number in range(60):
        items += turn(number)
        sent = budget.trim(items)
        assert sum(budget._tokens_of(item) for item in sent) <= 100
        starts.append(sent[1])
    assert len({id(start) for start in starts}) < 30


def test_each_item_is_counted_once() -> None:
    counted: list[str] = []

    def count(text: str) -> int:
        counted.append(text)
        return 10

    budget = TokenBudget(100, count)
    items = conversation(0)
    for number in range(50):
        items += turn(number)
        budget.trim(items)
        budget.trim(items)
    assert len(counted) == 101


def test_an_insertion_counts_only_what_is_new() -> None:
    counted: list[str] = []

    def count(text: str) -> int:
        counted.append(text)
        return 1

    budget = TokenBudget(10_000, count)
    items = conversation(5)
    budget.trim(items)
    counted.clear()
    items.insert(3, Message("assistant", "in between"))
    budget.trim(items)
    assert counted == ["in between"]


def test_the_system_prompt_and_the_last_turn_are_sent_even_when_they_are_too_large(
    caplog: pytest.LogCaptureFixture,
) -> None:
    long = Message("user", "so " * 500)
    items = [*conversation(3), long, Message("assistant", "yes")]
    budget = TokenBudget(20, words)
    with caplog.at_level(logging.WARNING):
        assert budget.trim(items) == [SYSTEM, *items[-2:]]
        budget.trim(items)
    assert sum("max_context_tokens" in record.message for record in caplog.records) == 1


def test_several_messages_of_the_caller_in_a_row_are_one_turn() -> None:
    items = [*conversation(5), Message("user", "wait"), Message("user", "what?")]
    assert TokenBudget(1, words).trim(items) == [SYSTEM, *items[-2:]]


def test_no_cut_comes_between_a_call_and_its_result() -> None:
    call, result = ToolCall("1", "look", "{}"), ToolResult("1", "look", "null")
    items = [SYSTEM, *turn(0), Message("user", "look"), call, Message("user", "well?"), result, *turn(1)]
    assert TokenBudget(30, words).trim(items) == [SYSTEM, *items[-2:]]
    assert TokenBudget(1, words).trim(items[:-2]) == [SYSTEM, *items[3:-2]]


def test_a_call_without_a_result_does_not_stop_the_cutting() -> None:
    items = [SYSTEM, Message("user", "look"), ToolCall("1", "look", "{}"), *turn(0), *turn(1)]
    assert TokenBudget(1, words).trim(items) == [SYSTEM, *items[-2:]]


def test_a_conversation_without_the_caller_is_sent_whole() -> None:
    items: list[Item] = [SYSTEM, *(Message("assistant", "Hello? " * 20) for _ in range(20))]
    assert TokenBudget(10, words).trim(items) is items


@pytest.mark.parametrize("broken", [{}.get, str.upper, int])
def test_a_tokenizer_that_fails_is_replaced_by_the_estimate(broken: Any, caplog: pytest.LogCaptureFixture) -> None:
    budget = TokenBudget(60, broken)
    items = conversation(20)
    assert budget.trim(items) == TokenBudget(60).trim(items)
    assert len(caplog.records) == 1


def test_the_estimate_counts_other_scripts_higher() -> None:
    assert estimate_tokens("") == 0
    assert estimate_tokens("four") == 1
    assert estimate_tokens("hello") == 2
    assert estimate_tokens("你好") == 2
    assert estimate_tokens("\ud800") == 1


texts = st.text(alphabet="ab ", max_size=12)
pieces: st.SearchStrategy[Sequence[Item]] = st.one_of(
    texts.map(lambda text: [Message("user", text)]),
    texts.map(lambda text: [Message("assistant", text)]),
    texts.map(lambda text: [Message("system", text)]),
    st.integers(0, 9).map(lambda n: [ToolCall(str(n), "look", "{}"), ToolResult(str(n), "look", "null")]),
    st.integers(0, 9).map(lambda n: [ToolCall(str(n), "look", "{}"), Message("user", "!"), ToolResult(str(n), "look", "null")]),
)  # fmt: skip


@given(parts=st.lists(pieces, max_size=30), limit=st.integers(1, 80), steps=st.integers(1, 4))
def test_whatever_is_sent_is_the_prompt_and_an_unbroken_end_with_its_pairs(
    parts: list[Sequence[Item]], limit: int, steps: int
) -> None:
    budget = TokenBudget(limit, words)
    items: list[Item] = [SYSTEM]
    for number, part in enumerate(parts):
        items += part
        if number % steps:
            continue
        before = list(items)
        sent = list(budget.trim(items))
        assert items == before
        head = next((i for i, item in enumerate(items) if getattr(item, "role", "") != "system"), len(items))
        rest = sent[head:]
        assert sent[:head] == items[:head]
        assert all(a is b for a, b in zip(rest, items[len(items) - len(rest) :], strict=True))
        if len(rest) < len(items) - head:
            assert isinstance(rest[0], Message)
            assert rest[0].role == "user"
            asked = [index for index, item in enumerate(rest) if isinstance(item, ToolCall)]
            answers = [index for index, item in enumerate(rest) if isinstance(item, ToolResult)]
            assert not answers or (asked and min(asked) < min(answers))


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"max_context_tokens": 0}, ValueError),
        ({"max_context_tokens": -5}, ValueError),
        ({"max_context_tokens": 1.5}, TypeError),
        ({"max_context_tokens": True}, TypeError),
        ({"count_tokens": len}, ValueError),
        ({"count_tokens": 7, "max_context_tokens": 10}, TypeError),
    ],
)
def test_a_budget_that_makes_no_sense_is_refused(options: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error, match=r"max_context_tokens|count_tokens"):
        ChatAgent(base_url="http://localhost/v1", model="m", **options)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("child", [False, True])
def test_requests_stay_within_the_budget_and_the_conversation_stays_whole(backend: Backend, child: bool) -> None:
    async def scenario() -> None:
        async with ScriptedProvider([say("ok")]) as provider:

            def make() -> ChatAgent:
                return ChatAgent(
                    base_url=provider.base_url,
                    model="m",
                    connect=provider.connect,
                    system_prompt="Be brief.",
                    max_context_tokens=50,
                    count_tokens=words,
                )

            made: Agent = FallbackAgent([make]) if child else make()
            async with made as agent:
                for number in range(12):
                    agent.add_user_message(f"question {number}")
                    await agent.answer().wait()
                assert len(agent.conversation) == 25
            sizes = [len(request.body["messages"]) for request in provider.requests if request.body is not None]
            assert max(sizes) < 9
            assert sizes[0] == 2
            for request in provider.requests:
                assert request.body is not None
                assert request.body["messages"][0] == {"role": "system", "content": "Be brief."}
                assert request.body["messages"][-1]["content"].startswith("question")

    run_virtual(backend, scenario)
