"""What a test says of one turn: expectations that hold pass, and one that fails tells the course of the answer."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from micdrop_agent import AnthropicAgent, ChatAgent, ExtractJson, FallbackAgent, ProviderError, Retry, tool
from micdrop_agent.testing import (
    BACKENDS,
    Call,
    Cassette,
    ExpectationError,
    ScriptedAgent,
    ScriptedProvider,
    Talk,
    call_tool,
    cancel_everywhere,
    fault,
    judge,
    run_virtual,
    say,
    talk,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from micdrop_agent import Agent
    from micdrop_agent.testing import Backend, Probe

each_backend = pytest.mark.parametrize("backend", BACKENDS)


@tool
async def book(day: str, people: int = 2) -> str:
    """Book a table."""
    await anyio.sleep(0.5)
    if day == "sunday":
        raise RuntimeError("closed")
    return f"{people} on {day}"


def told(make: Callable[[], Agent], *questions: str, backend: Backend = "asyncio") -> list[Talk]:
    """The records of a short call."""

    async def scenario() -> list[Talk]:
        async with make() as agent:
            return [await talk(agent, question) for question in questions or ("A table for two, please.",)]

    return run_virtual(backend, scenario)


def booking(*acts: Any) -> Callable[[], Agent]:
    return lambda: ScriptedAgent(
        acts or (0.25, "One  moment. ", Call("book", {"day": "friday", "people": 2}), "Friday\nit is."), tools=[book]
    )


@each_backend
def test_what_holds_passes_and_can_be_chained(backend: Backend) -> None:
    (record,) = told(booking(), backend=backend)

    record.said("one moment", "FRIDAY it is.", re.compile(r"Friday\s+it")).never_said("sunday", re.compile("friday"))
    record.called("book").called("book", day="friday", people=2).called("book", day=re.compile("^fri"))
    record.called("book", people=lambda people: people > 1).within(first_chunk=0.25, total=0.75).ended("completed")
    assert [(use.name, use.arguments, use.output, use.error) for use in record.calls] == [
        ("book", {"day": "friday", "people": 2}, "2 on friday", None)
    ]
    assert record.chunks == ((0.25, "One  moment. "), (0.75, "Friday\nit is."))


COURSE = """\
the answer to "A table for two, please.":
  250 ms  ● first chunk (agent: ScriptedAgent)
  250 ms  says "One  moment. "
  250 ms  calls book({"day": "friday", "people": 2})
  750 ms  book returned: "2 on friday"
  750 ms  says "Friday\\nit is."
  750 ms  end: completed"""


@each_backend
@pytest.mark.parametrize(
    ("expect", "words"),
    [
        (lambda record: record.said("Saturday"), "should have said 'Saturday', and said \"One  moment. Friday"),
        (lambda record: record.said(re.compile("^Friday")), "should have said /^Friday/"),
        (lambda record: record.never_said("friday"), "should not have said 'friday'"),
        (lambda record: record.never_said(), "should have said nothing"),
        (lambda record: record.called("cancel"), "should have called cancel(), and called book({"),
        (lambda record: record.called("book", day="sunday"), "should have called book(day='sunday')"),
        (lambda record: record.called("book", hour=9), "should have called book(hour=9)"),
        (lambda record: record.called_nothing(), "should have called no tool, and called book("),
        (lambda record: record.extracted(), "should have extracted a value"),
        (lambda record: record.within(first_chunk=0.2), "within 200 ms, and came after 250 ms"),
        (lambda record: record.within(total=0.5), "at most 500 ms, and took 750 ms"),
        (lambda record: record.switched_to("two"), "should have switched to two, and did not switch"),
        (lambda record: record.cost(tokens=9), "cost at most 9 tokens, and its server reported none"),
        (lambda record: record.ended("failed"), "ended as failed, and ended as completed"),
    ],
)
def test_what_does_not_hold_says_so_and_tells_the_course(
    backend: Backend, expect: Callable[[Talk], object], words: str
) -> None:
    (record,) = told(booking(), backend=backend)

    with pytest.raises(ExpectationError) as caught:
        expect(record)
    assert words in str(caught.value).split("\n")[0]
    assert str(caught.value).endswith(COURSE)


@each_backend
def test_an_answer_that_fails_is_a_record_too(backend: Backend) -> None:
    (record,) = told(booking("One ", ProviderError("down", kind="server")), backend=backend)

    record.said("one").ended("failed").called_nothing()
    assert isinstance(record.result.error, ProviderError)
    with pytest.raises(ExpectationError, match="end: failed, down"):
        record.said("two")


@each_backend
def test_a_tool_that_fails_and_one_that_says_nothing_are_seen(backend: Backend) -> None:
    (record,) = told(booking(Call("book", {"day": "sunday"}), Call("book", "{not json"), Call("none")), backend=backend)

    record.called("book", day="sunday").never_said()
    assert [use.arguments for use in record.calls] == [{"day": "sunday"}, "{not json", {}]
    assert all(use.error for use in record.calls)
    assert "book failed: " in record.course
    with pytest.raises(ExpectationError, match="and it said nothing"):
        record.within(first_chunk=1)


@each_backend
def test_what_was_extracted_is_compared_as_a_whole_or_by_its_members(backend: Backend) -> None:
    def make() -> Agent:
        return ScriptedAgent(['Noted. {"day": "friday", "people": 2}'], extract=ExtractJson())

    (record,) = told(make, backend=backend)
    record.extracted().extracted({"day": "friday", "people": 2}).extracted(day="friday").extracted(people=int.__bool__)
    for wrong in ({"day": "sunday"}, {"hour": 9}):
        with pytest.raises(ExpectationError, match="should have extracted"):
            record.extracted(**wrong)
    with pytest.raises(ExpectationError, match="should have extracted"):
        record.extracted({"day": "friday"})


@each_backend
def test_the_next_question_has_a_record_of_its_own(backend: Backend) -> None:
    first, second = told(
        lambda: ScriptedAgent(["One.", Call("book", {"day": "friday"})], ["Two."], tools=[book]),
        *("First?", "Second?"),
        backend=backend,
    )

    first.said("One").called("book")
    second.said("Two").never_said("One").called_nothing()


@each_backend
def test_a_switch_its_cost_and_its_requests_are_seen(backend: Backend) -> None:
    async def scenario() -> Talk:
        script = {
            "one.test": [fault("status", status=500)],
            "two.test": [call_tool("book", {"day": "friday"}), say("At nine.")],
        }
        async with ScriptedProvider(script) as server:

            def child(host: str) -> Callable[[], Agent]:
                return lambda: ChatAgent(
                    model=host,
                    api_key="k",
                    base_url=f"http://{host}.test/v1",
                    connect=server.connect,
                    retry=Retry(max_retries=0),
                )

            async with FallbackAgent([child("one"), child("two")], names=["one", "two"], tools=[book]) as agent:
                return await talk(agent, "When?")

    record = run_virtual(backend, scenario)
    record.said("at nine").switched_to("two").called("book", day="friday").cost(requests=3)
    with pytest.raises(ExpectationError, match="at most 2 requests, and sent 3"):
        record.cost(requests=2)
    with pytest.raises(ExpectationError, match="should have switched to one, and switched to two"):
        record.switched_to("one")
    assert [line[10:] for line in record.course.splitlines()[1:]][:6] == [
        "asks one",
        "request 1 to one",
        "response 1 is over (error: server)",
        "one failed (error: server)",
        "⇄ switch from one to two",
        "asks two",
    ]


@each_backend
def test_tokens_are_counted_where_the_server_reports_them(backend: Backend, tmp_path: Path) -> None:
    async def ask(server: ScriptedProvider) -> Talk:
        async with AnthropicAgent(model="m", api_key="k", base_url=server.base_url, connect=server.connect) as agent:
            return await talk(agent, "When?")

    async def scenario() -> Talk:
        async with ScriptedProvider([say("At nine.")]) as server:
            return await ask(server)

    record = run_virtual(backend, scenario)
    record.cost(tokens=21)
    with pytest.raises(ExpectationError, match="at most 20 tokens, and cost 21"):
        record.cost(tokens=20)


@each_backend
def test_it_may_be_cancelled_and_swept(backend: Backend) -> None:
    async def scenario(probe: Probe) -> None:
        async with booking()() as agent:
            probe.watch(agent)
            record = await talk(agent, "A table!")
            assert record.result.status in {"completed", "cancelled"}
            assert record.text == record.result.text

    report = cancel_everywhere(scenario, backends=[backend], inject=["cancel", "host scope"])
    assert report.points > 20


# ------------------------------------------------------------------------------------------- judging


def judging(*words: str) -> Callable[[], Agent]:
    return lambda: ScriptedAgent(*([word] for word in words))


async def judged(make: Callable[[], Agent], **options: Any) -> Any:
    async with booking()() as agent, make() as by:
        record = await talk(agent, "A table!")
        before = list(by.conversation)
        try:
            return await judge(record, "offers Friday", by=by, **options)
        finally:
            assert list(by.conversation) == before


@each_backend
@pytest.mark.parametrize(
    ("words", "agrees"),
    [
        (("Yes, it does.", "no.", "**Yes** it does"), [True, False, True]),
        (("Well, yes.", "I cannot tell.", "YES"), [True, None, True]),
    ],
)
def test_the_majority_of_three_tries_decides(backend: Backend, words: tuple[str, ...], agrees: list[Any]) -> None:
    verdict = run_virtual(backend, lambda: judged(judging(*words)))
    assert [vote.agrees for vote in verdict.votes] == agrees


@each_backend
@pytest.mark.parametrize("words", [("No: not it.", "yes", "no"), ("Who knows?", "yes", "Nobody."), ("", "", "")])
def test_a_majority_that_says_no_fails_with_what_it_said_and_the_course(
    backend: Backend, words: tuple[str, ...]
) -> None:
    with pytest.raises(ExpectationError) as caught:
        run_virtual(backend, lambda: judged(judging(*words)))
    for told in ('it "offers Friday"; the judge said:', f": {words[0]}", 'book({"day": "friday", "people": 2})'):
        assert told in str(caught.value)


@each_backend
def test_a_judge_that_fails_says_nothing_of_the_claim_and_an_even_number_decides_nothing(backend: Backend) -> None:
    down = ProviderError("no such luck", kind="server")
    with pytest.raises(ProviderError, match="no such luck"):
        run_virtual(backend, lambda: judged(lambda: ScriptedAgent([down])))
    with pytest.raises(ValueError, match="odd number"):
        run_virtual(backend, lambda: judged(judging("yes"), tries=2))


@each_backend
def test_records_and_their_judge_play_from_a_cassette(backend: Backend, tmp_path: Path) -> None:
    async def scenario(cassette: Cassette) -> list[str]:
        def make(model: str) -> ChatAgent:
            return ChatAgent(
                model=model, api_key="sk-0123456789abcdefgh", base_url="http://m.test/v1", connect=cassette.connect
            )

        async with make("talker") as agent, make("judge") as by:
            record = await talk(agent, "A table!")
            verdict = await judge(record, "offers Friday", by=by)
            return [record.said("Friday").course, *(vote.words for vote in verdict.votes)]

    async def record() -> list[str]:
        script = [say("On Friday, ", "then?", gap=0.3), say("Yes."), say("No."), say("Yes!")]
        async with ScriptedProvider(script) as server:
            return await scenario(Cassette(tmp_path / "a.jsonl", "record", upstream=server.connect))

    first = run_virtual("asyncio", record)
    assert first[1:] == ["Yes.", "No.", "Yes!"]
    assert run_virtual(backend, scenario, Cassette(tmp_path / "a.jsonl", "replay")) == first
