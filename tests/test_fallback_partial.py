"""A child that fails in mid-answer: ``after_partial``, the seam, and what is stored of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import pytest

from fallback_kit import Cast, Heard, down, listen, stored
from micdrop_agent.errors import AllAgentsFailedError
from micdrop_agent.events import MessageAdded
from micdrop_agent.messages import Message, ToolCall, ToolResult
from micdrop_agent.model.protocol import Usage
from micdrop_agent.options import ExtractTag
from micdrop_agent.testing import BACKENDS, HANG, Backend, Call, ScriptedAgent, run_virtual
from micdrop_agent.tools import tool

if TYPE_CHECKING:
    from fallback_kit import Script
    from micdrop_agent._core.turn import Turn

both = pytest.mark.parametrize("backend", BACKENDS)


@tool
def look() -> str:
    """Look out of the window."""
    return "rain"


@both
def test_continue_joins_the_two_texts_into_one_message(backend: Backend) -> None:
    seen: list[Any] = []

    def note(turn: Turn) -> None:
        seen.append((turn.continue_from, [item for item in turn.conversation if isinstance(item, Message)][-1].content))

    cast = Cast(["The capital of France ", "is", down("truncated")], [note, "is Paris", ". Bye."])

    async def scenario() -> Heard:
        async with cast.agent() as agent:
            heard = await listen(agent)
            assert stored(agent) == ["u:Hello?", "a:The capital of France is Paris. Bye."]
            return heard

    heard = run_virtual(backend, scenario)
    assert heard.text == "The capital of France is Paris. Bye."
    assert seen == [("The capital of France is", "Hello?")]
    assert heard.switches == [("a", "b", False)]
    assert sum(isinstance(event, MessageAdded) for event in heard.events) == 2


@both
def test_continue_goes_on_over_several_children(backend: Backend) -> None:
    cast = Cast(["One", down()], [" two", down()], [down()], ["One two three."])

    async def scenario() -> Heard:
        async with cast.agent() as agent:
            heard = await listen(agent)
            assert stored(agent) == ["u:Hello?", "a:One two three."]
            return heard

    assert run_virtual(backend, scenario).text == "One two three."


@both
def test_restart_says_it_again_and_tells_the_host(backend: Backend) -> None:
    cast = Cast(["The capital is", down()], ["Paris is the capital."])

    async def scenario() -> Heard:
        async with cast.agent(after_partial="restart") as agent:
            heard = await listen(agent)
            assert stored(agent) == ["u:Hello?", "a:Paris is the capital."]
            return heard

    heard = run_virtual(backend, scenario)
    assert heard.chunks == ["The capital is", "Paris is the capital."]
    assert heard.switches == [("a", "b", True)]


@both
def test_a_restart_that_finds_nobody_keeps_what_was_heard(backend: Backend) -> None:
    """Invariant 5: the text is taken back only when another child says something in its place."""
    cast = Cast(["Half a ", down()], [down()])

    async def scenario() -> Heard:
        async with cast.agent(after_partial="restart") as agent:
            heard = await listen(agent)
            assert stored(agent) == ["u:Hello?", "a!:Half a "]
            return heard

    heard = run_virtual(backend, scenario)
    assert isinstance(heard.error, AllAgentsFailedError)


@both
def test_a_barge_in_before_the_restarted_answer_keeps_what_was_heard(backend: Backend) -> None:
    cast = Cast(["Half a ", down()], [HANG])

    async def scenario() -> None:
        async with cast.agent(after_partial="restart") as agent:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(listen, agent)
                await anyio.sleep(1)
                agent.cancel()
            assert stored(agent) == ["u:Hello?", "a!:Half a "]

    run_virtual(backend, scenario)


@both
def test_stop_fails_the_answer_and_the_next_child_has_the_next_turn(backend: Backend) -> None:
    cast = Cast(["Half a ", down("truncated")], ["b"])

    async def scenario() -> None:
        async with cast.agent(after_partial="stop") as agent:
            heard = await listen(agent)
            assert heard.text == "Half a "
            assert getattr(heard.error, "kind", None) == "truncated"
            assert heard.names()[-2:] == ["AnswerFailed", "AnswerFinished"], "skipped is for nothing heard at all"
            assert (await listen(agent)).text == "b"
            assert stored(agent) == ["u:Hello?", "a!:Half a ", "u:Hello?", "a:b"]

    run_virtual(backend, scenario)
    assert cast.asked() == [1, 1]


@both
def test_stop_before_any_text_goes_on_to_the_next_child(backend: Backend) -> None:
    cast = Cast([down()], ["b"])

    async def scenario() -> Heard:
        async with cast.agent(after_partial="stop") as agent:
            return await listen(agent)

    assert run_virtual(backend, scenario).text == "b"


@both
@pytest.mark.parametrize("nested", [False, True])
def test_nothing_is_continued_after_a_content_filter(backend: Backend, *, nested: bool) -> None:
    script: Script = ["Half a ", down("content_filter")]
    inner = Cast(script)
    cast = Cast(inner.agent if nested else script, ["b"])

    async def scenario() -> Heard:
        async with cast.agent() as agent:
            return await listen(agent)

    heard = run_virtual(backend, scenario)
    assert heard.text == "Half a "
    assert getattr(heard.error, "kind", None) == "content_filter"


@both
@pytest.mark.parametrize("nested", [False, True])
def test_nothing_is_continued_after_a_tool_ran_in_the_same_response(backend: Backend, *, nested: bool) -> None:
    async def respond(turn: Turn) -> None:
        await turn.run_tools([ScriptedAgent()._item(Call("look"))])
        await turn.write("It ")
        raise down("truncated")

    inner = Cast([respond])
    cast = Cast(inner.agent if nested else [respond], ["b"])

    async def scenario() -> Heard:
        async with cast.agent(tools=[look]) as agent:
            heard = await listen(agent)
            assert stored(agent) == ["u:Hello?", "call:look", 'result:"rain"', "a!:It "]
            return heard

    heard = run_virtual(backend, scenario)
    assert heard.text == "It "
    assert getattr(heard.error, "kind", None) == "truncated"


@both
@pytest.mark.parametrize("nested", [False, True])
def test_nothing_is_continued_inside_a_value_that_is_extracted(backend: Backend, *, nested: bool) -> None:
    def child() -> ScriptedAgent:
        return ScriptedAgent(["Sure. <v>{1", down("truncated")], extract=ExtractTag(start_tag="<v>", end_tag="</v>"))

    inner = Cast(child)
    cast = Cast(inner.agent if nested else child, ["b"])

    async def scenario() -> Heard:
        async with cast.agent() as agent:
            return await listen(agent)

    heard = run_virtual(backend, scenario)
    assert heard.text.strip() == "Sure."
    assert getattr(heard.error, "kind", None) == "truncated"


@both
def test_a_child_that_had_only_begun_a_value_is_replaced_without_a_trace(backend: Backend) -> None:
    cast = Cast(
        lambda: ScriptedAgent(["<v>{1", down("truncated")], extract=ExtractTag(start_tag="<v>", end_tag="</v>")),
        lambda: ScriptedAgent(["Sure.<v>2</v>"], extract=ExtractTag(start_tag="<v>", end_tag="</v>")),
    )

    async def scenario() -> Heard:
        async with cast.agent() as agent:
            heard = await listen(agent)
            assert stored(agent) == ["u:Hello?", "a:Sure."]
            return heard

    heard = run_virtual(backend, scenario)
    assert (heard.text, heard.result.extracted) == ("Sure.", "2")


@both
def test_a_step_that_fails_after_its_tool_is_handed_over_with_call_and_result(backend: Backend) -> None:
    runs: list[int] = []
    seen: list[list[str]] = []

    @tool
    def book() -> str:
        """Book it."""
        runs.append(1)
        return "booked"

    def note(turn: Turn) -> None:
        seen.append([type(item).__name__ for item in turn.conversation])
        assert turn.continue_from is None

    cast = Cast(["One moment. ", Call("book"), down()], [note, "It is booked."])

    async def scenario() -> Heard:
        async with cast.agent(tools=[book]) as agent:
            heard = await listen(agent)
            assert stored(agent) == [
                "u:Hello?",
                "a:One moment. ",
                "call:book",
                'result:"booked"',
                "a:It is booked.",
            ]
            return heard

    heard = run_virtual(backend, scenario)
    assert heard.text == "One moment. It is booked."
    assert runs == [1]
    assert seen == [["Message", "Message", "Message", "ToolCall", "ToolResult"]]


@both
def test_a_call_that_was_cut_with_its_child_has_a_result(backend: Backend) -> None:
    """The child fails while its tool is still out: the pair is whole for the next one."""

    async def call_and_fail(turn: Turn) -> None:
        turn.add(ScriptedAgent()._item(Call("look")))
        raise down()

    cast = Cast([call_and_fail], ["b"])

    async def scenario() -> Heard:
        async with cast.agent(tools=[look]) as agent:
            heard = await listen(agent)
            assert stored(agent) == ["u:Hello?", "call:look", 'result:{"error":"cancelled"}', "a:b"]
            return heard

    assert run_virtual(backend, scenario).text == "b"


@both
@pytest.mark.parametrize("chunk", ["is", "is the", "no", " new"])
def test_the_seam_is_held_back_for_150_ms_and_no_longer(backend: Backend, chunk: str) -> None:
    """A continuation that stalls in its first word is heard after 150 ms, unless it only repeats."""
    times: list[float] = []
    cast = Cast(["The capital is", down()], [chunk, 5.0, " Paris."])

    async def scenario() -> str:
        async with cast.agent() as agent:
            agent.add_user_message("Hello?")
            heard: list[str] = []
            async for text in agent.answer():
                heard.append(text)
                times.append(anyio.current_time())
            return "".join(heard)

    text = run_virtual(backend, scenario)
    if chunk == "is":
        assert text == "The capital is Paris."
        assert times[1] == pytest.approx(5.0), "it only repeated: there was nothing new to hear"
    else:
        assert times[1] <= 0.15 + 1e-6


@both
def test_the_seam_is_watched_until_there_is_something_new(backend: Backend) -> None:
    """After the first 150 ms too: a late start does not leave the rest held back."""
    times: list[float] = []

    async def begin_late(turn: Turn) -> None:
        turn.claim()

    cast = Cast(["The capital is", down()], [begin_late, 1.0, "no", 5.0, "w Paris."])

    async def scenario() -> str:
        async with cast.agent() as agent:
            agent.add_user_message("Hello?")
            heard: list[str] = []
            async for text in agent.answer():
                heard.append(text)
                times.append(anyio.current_time())
            return "".join(heard)

    assert run_virtual(backend, scenario) == "The capital is now Paris."
    assert 1.0 <= times[1] <= 1.0 + 0.15 + 1e-6


@both
def test_at_most_200_characters_are_held_back(backend: Backend) -> None:
    cast = Cast(["So", down()], [chr(ord("a")) * 1000, 5.0])
    times: list[float] = []

    async def scenario() -> None:
        async with cast.agent() as agent:
            agent.add_user_message("Hello?")
            times.extend([anyio.current_time() async for _ in agent.answer()])

    run_virtual(backend, scenario)
    assert times == [0.0, 0.0]


@both
def test_a_child_that_ends_its_stream_in_the_seam_ends_the_answer(backend: Backend) -> None:
    """What was held back at ``turn.end()`` is not pushed into a closed stream 150 ms later."""

    async def end(turn: Turn) -> None:
        turn.end()
        await anyio.sleep(1)

    cast = Cast(["The capital is", down()], ["no", end])

    async def scenario() -> Heard:
        async with cast.agent() as agent:
            heard = await listen(agent)
            assert heard.answer is not None
            await heard.answer.wait()
            return heard

    heard = run_virtual(backend, scenario)
    assert heard.error is None
    assert heard.result.status == "completed"


@both
def test_a_child_that_fails_behind_the_end_of_its_stream_has_failed_for_good(backend: Backend) -> None:
    def end(turn: Turn) -> None:
        turn.end()

    cast = Cast(["a", end, 0.5, down()], ["b"])

    async def scenario() -> Heard:
        async with cast.agent() as agent:
            heard = await listen(agent)
            assert heard.answer is not None
            await heard.answer.wait()
            return heard

    heard = run_virtual(backend, scenario)
    assert heard.text == "a"
    assert heard.result.status == "failed"
    assert cast.asked() == [1, 0]


@both
def test_the_usage_of_all_children_that_spoke_is_summed_and_that_of_a_loser_is_not(backend: Backend) -> None:
    def spend(tokens: int) -> Any:
        return lambda turn: turn.add_usage(Usage(input_tokens=tokens, output_tokens=tokens))

    async def spend_late(turn: Turn) -> None:
        with anyio.CancelScope(shield=True):
            await anyio.sleep(1)
            turn.add_usage(Usage(input_tokens=1000, output_tokens=1000))

    cast = Cast([spend_late], ["One ", spend(10), 2.0, down()], [spend(5), "two."])

    async def scenario() -> Heard:
        async with cast.agent(hedge_after=0.5) as agent:
            heard = await listen(agent)
            await anyio.sleep(3)
            return heard

    heard = run_virtual(backend, scenario)
    assert heard.text == "One two."
    assert heard.result.usage is not None
    assert heard.result.usage.input_tokens == 15


@both
def test_a_nested_restart_takes_back_the_whole_sentence(backend: Backend) -> None:
    inner = Cast([" is", down()], ["Paris is the capital."])
    outer = Cast(["The capital", down()], lambda: inner.agent(after_partial="restart"))

    async def scenario() -> Heard:
        async with outer.agent() as agent:
            heard = await listen(agent)
            assert stored(agent) == ["u:Hello?", "a:Paris is the capital."]
            return heard

    heard = run_virtual(backend, scenario)
    assert heard.chunks[-1] == "Paris is the capital."
    assert heard.switches == [("a", "b", False), ("a", "b", True)]


@both
def test_the_filler_of_a_hook_is_not_said_into_a_sentence(backend: Backend) -> None:
    def hook(agent: Any, turn: Turn) -> None:
        turn.write_nowait("Hm. ")

    cast = Cast(
        lambda: ScriptedAgent(["The capital is", down()], on_before_answer=hook),
        lambda: ScriptedAgent([" Paris."], on_before_answer=hook),
    )

    async def scenario() -> Heard:
        async with cast.agent() as agent:
            heard = await listen(agent)
            assert stored(agent) == ["u:Hello?", "a:The capital is Paris."]
            return heard

    assert run_virtual(backend, scenario).text == "Hm. The capital is Paris."


@both
@pytest.mark.parametrize("way", ["run_tools", "add"])
def test_what_was_said_stands_before_the_call_with_which_the_next_child_goes_on(backend: Backend, way: str) -> None:
    """The half sentence is a message of its own then, and what comes after the tool is not joined to it."""

    async def call(turn: Turn) -> None:
        item = ToolCall("1", "look", "{}")
        if way == "run_tools":
            turn.commit()  # as the turn loop does before a call
            await turn.run_tools([item])
        else:
            turn.add(item)
            turn.add(ToolResult("1", "look", '"rain"'))

    cast = Cast(["It is", down()], [call, "is raining."])

    async def scenario() -> Heard:
        async with cast.agent(tools=[look]) as agent:
            heard = await listen(agent)
            assert stored(agent) == ["u:Hello?", "a:It is", "call:look", 'result:"rain"', "a:is raining."]
            return heard

    assert run_virtual(backend, scenario).text == "It isis raining."
