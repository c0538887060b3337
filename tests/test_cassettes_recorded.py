"""What real servers really sent: alike on every loop, and whole wherever it is interrupted."""

from __future__ import annotations

import os
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import anyio
import attrs
import pytest
from cassette_stories import CASSETTES, QUESTIONS, SPEECH, STORIES, WORDS, Story, hear, speak
from cassette_sweep import Sweep

from micdrop_agent import Message
from micdrop_agent.model.protocol import Progress
from micdrop_agent.providers.responses.chat_stream import ChatTranslator
from micdrop_agent.providers.responses.http_stream import BodyReader
from micdrop_agent.providers.responses.responses_stream import ResponsesTranslator
from micdrop_agent.testing import BACKENDS, Cassette, run_virtual, talk

if TYPE_CHECKING:
    from collections.abc import Sequence

    from micdrop_agent.messages import Item
    from micdrop_agent.model.protocol import ProviderEvent
    from micdrop_agent.result import TraceEvent
    from micdrop_agent.testing import Backend
    from micdrop_agent.testing._tape import Recording

each_story = pytest.mark.parametrize("story", STORIES, ids=lambda story: story.name)
each_backend = pytest.mark.parametrize("backend", BACKENDS)


async def had(story: Story, **options: Any) -> list[Any]:
    """The call of a story: what was said, the conversation, and the trace with its times."""
    async with story.make(Cassette(story.file, "replay", **options).connect) as agent:
        records = [await talk(agent, question) for question in QUESTIONS]
        return [
            [(record.text, record.result.usage) for record in records],
            [replace_ids(item) for item in agent.conversation],
            [in_order(record.result.trace) for record in records],
            records,
        ]


def replace_ids(item: Item) -> Item:
    """A server that gives its calls no id gets one that the agent makes up."""
    return item if isinstance(item, Message) else attrs.evolve(item, tool_call_id="id")


def in_order(trace: Sequence[TraceEvent]) -> list[Any]:
    """The events, those of one moment by name: what a tool and its response do in the same moment has no order."""
    events = [(round(event.at, 6), event.kind, facts(event)) for event in trace]
    return sorted(events, key=lambda event: event[:2])


def facts(event: TraceEvent) -> dict[str, Any]:
    return {name: value for name, value in event.detail.items() if name != "call"}


def test_each_cassette_has_a_story_and_each_story_a_cassette() -> None:
    assert {file.name for file in CASSETTES.iterdir()} == {SPEECH.name, *(story.file.name for story in STORIES)}


@each_story
def test_a_recorded_call_has_the_same_course_on_each_loop(story: Story) -> None:
    first, *others = (run_virtual(backend, had, story) for backend in (*BACKENDS, "asyncio-native"))
    assert [other[:3] for other in others] == [first[:3]] * len(others)

    asked, thanked = first[-1]
    for record in (asked, thanked):
        record.ended("completed")
        assert record.text.strip()
    if story.tools:
        asked.said(WORDS[0]).called("opening_hours", day="Friday").cost(requests=2)
        thanked.said(WORDS[1]).called_nothing().cost(requests=1)


@pytest.mark.skipif(find_spec("uvloop") is None, reason="needs uvloop")
@each_story
def test_a_recorded_call_has_the_same_course_on_uvloop(story: Story) -> None:
    import uvloop

    texts, conversation, traces, _ = anyio.run(
        lambda: had(story, speed=0), backend_options={"loop_factory": uvloop.new_event_loop}
    )
    quiet = run_virtual("asyncio", lambda: had(story, speed=0))
    assert (texts, conversation) == (quiet[0], quiet[1])
    assert [untimed(trace) for trace in traces] == [untimed(trace) for trace in quiet[2]]


def untimed(trace: list[Any]) -> list[str]:
    return sorted(str(event[1:]) for event in trace)


@each_backend
def test_recorded_speech_is_heard_and_spoken(backend: Backend) -> None:
    async def scenario() -> tuple[list[str], bytes]:
        cassette = Cassette(SPEECH, "replay")
        return await hear(cassette.connect), await speak(cassette.connect)

    heard, said = run_virtual(backend, scenario)
    assert heard == [QUESTIONS[0]]
    assert len(said) == 1366


BODIES = [
    pytest.param(recording, id=f"{story.name}-{number}")
    for story in STORIES
    for number, recording in enumerate(Cassette(story.file, "replay")._tape.recordings, 1)
    if recording.request.path.endswith(("/chat/completions", "/responses"))
]


@pytest.mark.parametrize("recording", BODIES)
def test_a_recorded_body_tells_the_same_wherever_it_is_cut(recording: Recording) -> None:
    body = b"".join(piece for _, piece in recording.body)

    def events(*pieces: bytes) -> list[ProviderEvent]:
        made = iter(range(99))
        kind = ResponsesTranslator if recording.request.path.endswith("/responses") else ChatTranslator
        reader = BodyReader(kind("p", new_id=lambda: str(next(made))))
        for piece in pieces:
            reader.feed(piece)
        reader.end()
        assert reader.translator.failure is None
        return [event for event in reader.translator.events if not isinstance(event, Progress)]

    whole = events(body)
    assert len(whole) > 2
    for at in range(1, len(body), 97):
        assert events(body[:at], body[at:]) == whole


EVERY = int(os.environ.get("MICDROP_SWEEP_EVERY", "2"))
"""Each how many-th point of a call with a stand-in is tried; with ``nox -s sweep`` all of them, 18,000 points. Those of
calls with a real model are all tried here: ten thousand points in all, in half a minute on two cores."""


@pytest.mark.parametrize("number", range(len(QUESTIONS)))
@each_story
def test_every_invariant_holds_wherever_and_however_a_recorded_call_is_interrupted(story: Story, number: int) -> None:
    every = 1 if story.name.startswith("llama") else EVERY
    points = sum(Sweep(story, number, backend).run(every=every, first=number) for backend in BACKENDS)

    assert points * every > 400
