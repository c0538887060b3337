"""The voice of the call server: a WebSocket that speaks Micdrop's protocol, for the same page and the same calls.

    microphone ──▶ page ──audio──▶ /voice/{id} ──▶ Call ──▶ speech to text ──▶ agent ──▶ text to speech ──▶ page

With OPENAI_API_KEY the voice is OpenAI's; else faster-whisper and espeak-ng of this machine, if they are installed.
CALL_VOICE=off leaves the text page alone.
"""

from __future__ import annotations

import json
import os
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

import anyio

from micdrop_agent import AgentSwitched, MessageCorrected, MicdropError, wire
from micdrop_agent.call import Call, starlette_link
from micdrop_agent.call.hosted import OpenaiSTT, OpenaiTTS
from micdrop_agent.call.local import EspeakTTS, WhisperSTT

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from anyio.abc import ObjectReceiveStream
    from starlette.websockets import WebSocket

    from micdrop_agent import Agent, Event
    from micdrop_agent.call import Link, SpeechToText, TextToSpeech

    Parts: TypeAlias = tuple[SpeechToText, TextToSpeech]

LONGEST_TEXT = 2000
"""Characters that a caller may type at once."""


@asynccontextmanager
async def speech_parts() -> AsyncGenerator[Parts | str]:
    """What hears and what speaks, for all calls; or why there is none."""
    if os.environ.get("CALL_VOICE") == "off":
        yield "the voice is switched off"
        return
    if os.environ.get("OPENAI_API_KEY"):
        async with OpenaiSTT() as stt, OpenaiTTS() as tts:
            yield stt, tts
        return
    try:
        whisper, voice = WhisperSTT(), EspeakTTS(words_per_minute=155)
    except MicdropError as missing:
        yield str(missing)
        return
    async with whisper:  # loads its model now, so that the first caller does not wait for it
        yield whisper, voice


class TypedText:
    """A link that also takes what the caller types: ``Say {"text": "..."}``, which is no frame of the protocol."""

    def __init__(self, link: Link, agent: Agent) -> None:
        self._link = link
        self._agent = agent
        self.call: Call | None = None
        self.send = link.send
        self.close = link.close

    async def receive(self) -> str | bytes:
        """The next frame of the protocol."""
        while True:
            frame = await self._link.receive()
            if not isinstance(frame, str) or not frame.startswith("Say "):
                return frame
            self._say(frame.removeprefix("Say "))

    def _say(self, line: str) -> None:
        try:
            text = str(json.loads(line)["text"])[:LONGEST_TEXT].strip()
        except (ValueError, TypeError, KeyError):
            return
        if text and self.call is not None:
            self.call.interrupt()
            self._agent.add_user_message(text)
            self.call.answer()


async def voice_call(socket: WebSocket, agent: Agent, parts: Parts) -> None:
    """One spoken call with an agent that is open; it lasts as long as its WebSocket."""
    async with starlette_link(socket) as plain:
        link = TypedText(plain, agent)
        await link.send(f"History {json.dumps(wire.dump(agent.conversation))}")
        greeting = None if agent.conversation[1:] else "Hello! How can I help you?"
        link.call = Call(
            link,
            agent=agent,
            stt=parts[0],
            tts=parts[1],
            first_message=greeting,
            failure_text="I am sorry, something went wrong. Please say that again.",
            partial_messages=True,
            send_tools=True,  # this page shows them; the page of a real service should not get them
        )
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(tell, agent.events(), link)
            await link.call.run()
            tasks.cancel_scope.cancel()


async def tell(events: ObjectReceiveStream[Event], link: TypedText) -> None:
    """Send what the protocol has no frame for; a client of Micdrop ignores names that it does not know."""
    async for event in events:
        line: dict[str, Any] | None = None
        if isinstance(event, AgentSwitched):
            line = {"type": "switch", "from": event.from_, "to": event.to, "reason": str(event.reason)}
        elif isinstance(event, MessageCorrected):
            new = [] if event.new is None else [event.new]
            line = {"type": "corrected", "items": wire.dump([event.old, *new])}
        if line is not None:
            try:
                await link.send(f"Note {json.dumps(line)}")
            except anyio.BrokenResourceError:
                return
