"""Short calls with each server that can run on this machine: recorded by ``tools/record_cassettes.py``, played by tests."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import anyio
import attrs

from micdrop_agent import AnthropicAgent, ChatAgent, GeminiAgent, MistralAgent, OpenaiAgent, Retry, Timeouts, tool
from micdrop_agent.call import Hearing, Voice
from micdrop_agent.call.hosted import OpenaiSTT, OpenaiTTS

if TYPE_CHECKING:
    from anyio.abc import ByteStream

    from micdrop_agent import Agent

CASSETTES: Final = Path(__file__).parent / "cassettes"
HOST: Final = "recorded.test"
"""Stands for the server in every request: the port of a run is nobody's business."""

KEY: Final = "sk-mock-0123456789abcdef"
QUESTIONS: Final = ("When are you open on Friday?", "Thank you. Goodbye!")
WORDS: Final = (
    'We are "open" on Friday from nine to five; the kitchen closes at half past four.',
    "You're welcome, see you on Friday! 🍕",
)

ConnectFn = Callable[[str, int, bool], Awaitable["ByteStream"]]


@tool
def opening_hours(day: str) -> str:
    """Say when the restaurant is open on a day of the week."""
    return f"{day}: 9 to 17"


@attrs.frozen
class Story:
    """One call.

    Args:
        name: Name of its cassette.
        agent: The class of its agent.
        path: What follows the host in the base URL.
        options: Further options of the agent.
        tools: Whether the model calls a tool.
    """

    name: str
    agent: Callable[..., Agent]
    path: str = "/v1"
    options: dict[str, Any] = attrs.field(factory=dict[str, Any])
    tools: bool = True

    @property
    def file(self) -> Path:
        return CASSETTES / f"{self.name}.jsonl"

    def make(self, connect: ConnectFn, api_key: str = KEY) -> Agent:
        """The agent that has this call."""
        given: dict[str, Any] = {
            "model": "m",
            "api_key": api_key,
            "base_url": f"http://{HOST}{self.path}",
            "connect": connect,
            "system_prompt": "You answer the phone of a restaurant, in one short sentence.",
            "timeouts": Timeouts(first_chunk=120, between_chunks=60, total=300),
            "retry": Retry(max_retries=0),
            "tools": [opening_hours] if self.tools else [],
        }
        return self.agent(**given | self.options)


LLAMA: Final = (
    Story("llama-chat", ChatAgent, options={"dialect": "template", "settings": {"max_tokens": 24}}, tools=False),
    Story(
        "llama-responses", OpenaiAgent, options={"dialect": "typed", "settings": {"max_output_tokens": 24}}, tools=False
    ),
)
"""A real small model, in llama.cpp."""

LLMOCK: Final = (
    Story("llmock-chat", ChatAgent),
    Story("llmock-responses", OpenaiAgent),
    Story("llmock-mistral", MistralAgent, "/mistral/v1"),
)

AIMOCK: Final = (
    Story("aimock-chat", ChatAgent),
    Story("aimock-responses", OpenaiAgent),
    Story("aimock-claude", AnthropicAgent),
    Story("aimock-gemini", GeminiAgent, "/v1beta"),
)

STORIES: Final = (*LLAMA, *LLMOCK, *AIMOCK)

# -- speech

SPEECH: Final = CASSETTES / "aimock-speech.jsonl"


class _Ear:
    """Takes what a Hearing is given."""

    def __init__(self) -> None:
        self.finals: list[str] = []

    def heard_partial(self, text: str) -> None: ...

    def heard_final(self, text: str) -> None:
        self.finals.append(text)


class _Mouth:
    """Takes what a Voice is given."""

    def __init__(self) -> None:
        self.audio = b""

    def say(self, pcm: bytes, text: str | None) -> None:
        self.audio += pcm

    async def wait_for_room(self) -> None: ...


async def hear(connect: ConnectFn) -> list[str]:
    """What a server understands of a second of silence."""
    send, receive = anyio.create_memory_object_stream[bytes](1)
    ear = _Ear()
    async with (
        anyio.create_task_group() as tasks,
        OpenaiSTT("m", base_url=f"http://{HOST}/v1", api_key=KEY, connect=connect) as stt,
    ):
        with send:
            send.send_nowait(bytes(3200))
        with receive:
            await stt.transcribe(receive, Hearing(ear, tasks.cancel_scope))
    return ear.finals


async def speak(connect: ConnectFn) -> bytes:
    """What a server's voice says."""
    send, receive = anyio.create_memory_object_stream[str](1)
    mouth = _Mouth()
    async with (
        anyio.create_task_group() as tasks,
        OpenaiTTS("m", base_url=f"http://{HOST}/v1", api_key=KEY, connect=connect) as tts,
    ):
        with send:
            send.send_nowait(WORDS[1])
        with receive:
            await tts.synthesize(receive, Voice(mouth, tasks.cancel_scope))
    return mouth.audio
