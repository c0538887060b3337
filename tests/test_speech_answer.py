"""``Speech``: an answer, or any stream of text, as pieces for a voice, and what of the original was heard."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from micdrop_agent import Message, speech
from micdrop_agent.speech import Speech
from micdrop_agent.testing import BACKENDS, ScriptedAgent, run_virtual

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from micdrop_agent.testing import Backend

TEXT = "**Well**, there are three of them, I believe. See [the menu](https://a.example) 😀 now.\n```\nx = 1\n```\nIs it 3.5? Yes."
PIECES = [
    "Well, there are three of them, ",
    "I believe. ",
    "See the menu now.\n",
    "Code block.\n",
    "Is it 3.5? ",
    "Yes.",
]


def pieces_of(text: str, size: int, options: Speech) -> list[str]:
    pieces = options.filter()
    return [
        piece for start in range(0, len(text), size) for piece in pieces.feed(text[start : start + size])
    ] + pieces.finish()


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_an_answer_becomes_pieces_for_a_voice(size: int) -> None:
    assert pieces_of(TEXT, size, Speech()) == PIECES


def test_each_half_can_be_left_out() -> None:
    plain = Speech(markdown=False, first_words=0)
    assert pieces_of("So **it** is, I believe. See <b>.", 2, plain) == ["So **it** is, I believe. ", "See <b>."]
    assert pieces_of("A\n```\nb\n```\n", 2, Speech(code="")) == ["A\n"]
    assert pieces_of("A\n```\nb\n```\n", 2, Speech(language="de-AT")) == ["A\n", "Programmcode.\n"]


@given(text=st.text(alphabet="ab *_.!\n|`[](,é1", max_size=60), size=st.integers(1, 9))
def test_no_piece_is_blank_and_the_way_back_ends_at_the_end(text: str, size: int) -> None:
    pieces = Speech().filter()
    said = [piece for start in range(0, len(text), size) for piece in pieces.feed(text[start : start + size])]
    said += pieces.finish()
    assert all(piece.strip() for piece in said)
    assert pieces.spoken == len("".join(said))
    way = [pieces.original(place) for place in range(pieces.spoken + 1)]
    assert way == sorted(way)
    assert not said or way[-1] == len(text)


def test_what_was_heard_is_found_through_a_transform() -> None:
    options = Speech(transform=lambda piece: piece.replace("12", "twelve").replace("3", "three"), first_words=0)
    pieces = options.filter()
    text = "It costs **12** euros today. That is 3 more."
    said = pieces.feed(text) + pieces.finish()
    assert said == ["It costs twelve euros today. ", "That is three more."]
    assert text[: pieces.original(len(said[0]))] == "It costs **12** euros today. "
    assert pieces.original(0) == 0
    assert pieces.original(10**6) == len(text)
    assert 0 < pieces.original(12) < len(said[0])


def test_a_transform_that_raises_loses_nothing(caplog: pytest.LogCaptureFixture) -> None:
    def broken(piece: str) -> str:
        raise KeyError(piece)

    assert pieces_of("One sentence here.", 3, Speech(transform=broken)) == ["One sentence here."]
    assert "transform" in caplog.text


def test_a_transform_may_leave_a_piece_out() -> None:
    options = Speech(transform=lambda piece: "" if "secret" in piece else piece, first_words=0)
    assert pieces_of("This is a secret thing. This is not.", 5, options) == ["This is not."]


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_sentences_of_an_answer_are_two_lines(backend: Backend) -> None:
    said: list[str] = []

    async def scenario() -> None:
        async with ScriptedAgent([TEXT[place : place + 4] for place in range(0, len(TEXT), 4)]) as agent:
            agent.add_user_message("Hello")
            said.extend([sentence async for sentence in speech.sentences(agent.answer())])
            assert agent.conversation[-1] == Message("assistant", TEXT)

    run_virtual(backend, scenario)
    assert said == PIECES


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("heard_pieces", [0, 1, 2, 3])
def test_a_barge_in_keeps_what_was_heard_of_the_original(backend: Backend, heard_pieces: int) -> None:
    async def scenario() -> str:
        async with ScriptedAgent([TEXT[place : place + 4] for place in range(0, len(TEXT), 4)]) as agent:
            agent.add_user_message("Hello")
            sentences = speech.sentences(agent.answer())
            heard = ""
            async for sentence in sentences:
                if len(heard) == len("".join(PIECES[:heard_pieces])):
                    break
                heard += sentence
            agent.cancel(heard=sentences.stop(len(heard)))
            assert [sentence async for sentence in sentences] == []
            last = agent.conversation[-1]
            assert isinstance(last, Message)
            return last.content if last.role == "assistant" else ""

    stored = run_virtual(backend, scenario)
    assert (
        stored
        == ["", "**Well**, there are three of them, ", TEXT[: TEXT.index("See")], TEXT[: TEXT.index("```")]][
            heard_pieces
        ]
    )


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_stream_that_fails_says_what_came_and_then_raises(backend: Backend) -> None:
    async def scenario() -> None:
        async def broken() -> AsyncIterator[str]:
            yield "This was said. And th"
            raise OSError("gone")

        sentences = speech.sentences(broken(), Speech(first_words=0))
        assert [await anext(sentences), await anext(sentences)] == ["This was said. ", "And th"]
        with pytest.raises(OSError, match="gone"):
            await anext(sentences)
        with pytest.raises(StopAsyncIteration):
            await anext(sentences)

    run_virtual(backend, scenario)


@pytest.mark.parametrize("options", [{"language": "no such"}, {"first_words": -1}, {"max_letters": 0}])
def test_senseless_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="must"):
        Speech(**options)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("buffer_size", [None, 0, 3])
def test_an_agent_with_speech_hands_out_sentences_and_stores_the_original(
    backend: Backend, buffer_size: int | None
) -> None:
    async def scenario() -> None:
        chunks = [TEXT[place : place + 4] for place in range(0, len(TEXT), 4)]
        async with ScriptedAgent(chunks, speech=Speech(), buffer_size=buffer_size) as agent:
            agent.add_user_message("Hello")
            answer = agent.answer()
            assert [piece async for piece in answer] == PIECES
            assert answer.text == TEXT
            assert agent.conversation[-1] == Message("assistant", TEXT)

    run_virtual(backend, scenario)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("count", range(7))
@pytest.mark.parametrize("how", ["received", "number", "text"])
@pytest.mark.parametrize("pause", [0.0, 50.0])
@pytest.mark.parametrize("size", [4, 1000])
def test_a_barge_in_on_an_agent_with_speech_stores_what_the_pieces_stand_for(
    backend: Backend, count: int, how: str, pause: float, size: int
) -> None:
    options = Speech()
    pieces = options.filter()
    pieces.feed(TEXT)
    pieces.finish()

    async def scenario() -> None:
        chunks = [TEXT[place : place + size] for place in range(0, len(TEXT), size)]
        async with ScriptedAgent(chunks, speech=options) as agent:
            agent.add_user_message("Hello")
            answer = agent.answer()
            heard = "".join([await answer.receive() for _ in range(count if count < len(PIECES) else 6)])
            await anyio.sleep(pause)  # the model may have ended long ago; what was not taken is cut all the same
            agent.cancel(heard={"received": None, "number": len(heard), "text": heard}[how])
            assert [piece async for piece in answer] == []
            stored = TEXT[: pieces.original(len(heard))]
            last = agent.conversation[-1]
            assert isinstance(last, Message)
            assert (last.content if last.role == "assistant" else "") == stored

    run_virtual(backend, scenario)


@pytest.mark.parametrize("backend", BACKENDS)
def test_half_a_piece_that_was_heard_is_half_of_its_original(backend: Backend) -> None:
    async def scenario() -> None:
        async with ScriptedAgent(["**This** is one ", "sentence. And more."], speech=Speech()) as agent:
            agent.add_user_message("Hello")
            answer = agent.answer()
            assert await answer.receive() == "This is one sentence. "
            answer.cancel(heard=len("This is"))
            last = agent.conversation[-1]
            assert isinstance(last, Message)
            assert last.content == "**This** is"

    run_virtual(backend, scenario)


@pytest.mark.parametrize("backend", BACKENDS)
def test_whoever_only_waits_for_an_answer_with_speech_has_all_of_it(backend: Backend) -> None:
    async def scenario() -> None:
        async with ScriptedAgent([TEXT], speech=Speech()) as agent:
            agent.add_user_message("Hello")
            answer = agent.answer()
            assert (await answer.wait()).text == TEXT
            assert [piece async for piece in answer] == PIECES
            assert answer.text == TEXT

    run_virtual(backend, scenario)


def test_speech_of_another_kind_is_refused() -> None:
    with pytest.raises(TypeError, match=r"speech must be a Speech"):
        ScriptedAgent(["A"], speech="en")  # type: ignore[arg-type]  # the mistake that the test is about
