"""Pipecat's WebSocket transport in ``call_sockets.py``, with parts that do what those of micdrop_agent_server.py do.

Its transport leaves the frames on the wire to a serializer; this one speaks the same commands and audio as the other
servers. Runs in an environment of its own, with ``pipecat-ai`` and ``uvicorn``.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
import sys
import time
from typing import Any

import uvicorn
from loguru import logger
from pipecat.frames.frames import (
    Frame,
    InputAudioRawFrame,
    InterruptionFrame,
    OutputAudioRawFrame,
    TextFrame,
    TranscriptionFrame,
    TTSAudioRawFrame,
    UserStartedSpeakingFrame,
    UserStoppedSpeakingFrame,
)
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.runner import PipelineRunner
from pipecat.pipeline.task import PipelineParams, PipelineTask
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor
from pipecat.serializers.base_serializer import FrameSerializer
from pipecat.transports.websocket.fastapi import FastAPIWebsocketParams, FastAPIWebsocketTransport
from starlette.applications import Starlette
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket  # noqa: TC002 - Starlette reads it at run time

SILENCE = bytes(3192)
RATE = 16_000


class Commands(FrameSerializer):
    """The commands and the audio of Micdrop's protocol."""

    async def serialize(self, frame: Frame) -> str | bytes | None:
        """Audio is sent as it is."""
        return frame.audio if isinstance(frame, OutputAudioRawFrame) else None

    async def deserialize(self, data: str | bytes) -> Frame | None:
        """Text is a command, binary is audio."""
        if isinstance(data, bytes):
            return InputAudioRawFrame(audio=data, sample_rate=RATE, num_channels=1)
        return UserStartedSpeakingFrame() if data == "StartSpeaking" else UserStoppedSpeakingFrame()


class Part(FrameProcessor):
    """A processor with one task of its own, which an interruption ends."""

    def __init__(self) -> None:
        super().__init__()
        self.work: asyncio.Task[None] | None = None

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        """React, and hand on."""
        await super().process_frame(frame, direction)
        if isinstance(frame, InterruptionFrame) and self.work is not None:
            self.work.cancel()
            self.work = None
        await self.react(frame)
        await self.push_frame(frame, direction)

    async def react(self, frame: Frame) -> None:
        """What this part does."""


class Ear(Part):
    """Knows the text as soon as the audio has ended, and interrupts."""

    async def react(self, frame: Frame) -> None:
        """Hear."""
        if isinstance(frame, UserStartedSpeakingFrame):
            await self.push_frame(InterruptionFrame())
        elif isinstance(frame, UserStoppedSpeakingFrame):
            await self.push_frame(TranscriptionFrame("What do you have to say?", "", ""))


class Words(Part):
    """Says a sentence, or a word every 100 ms until it is interrupted."""

    def __init__(self, *, endless: bool) -> None:
        super().__init__()
        self.endless = endless

    async def react(self, frame: Frame) -> None:
        """Answer."""
        if isinstance(frame, TranscriptionFrame):
            self.work = asyncio.create_task(self.say())

    async def say(self) -> None:
        """Say it."""
        await self.push_frame(TextFrame("This is what I have to say. "))
        while self.endless:
            await asyncio.sleep(0.1)
            await self.push_frame(TextFrame("more "))


class Voice(Part):
    """100 ms for each piece of text; or 20 ms of audio every 2 ms."""

    def __init__(self, *, torrent: bool) -> None:
        super().__init__()
        self.torrent = torrent

    async def react(self, frame: Frame) -> None:
        """Speak."""
        if not isinstance(frame, TextFrame) or isinstance(frame, TranscriptionFrame):
            return
        if self.torrent:
            self.work = asyncio.create_task(self.pour())
        else:
            await self.speak(struct.pack("<q", time.perf_counter_ns()) + SILENCE)

    async def pour(self) -> None:
        """Speak faster than anybody listens."""
        while True:
            await self.speak(SILENCE[:640])
            await asyncio.sleep(0.002)

    async def speak(self, pcm: bytes) -> None:
        """Hand audio to the transport."""
        await self.push_frame(TTSAudioRawFrame(audio=pcm, sample_rate=RATE, num_channels=1))


async def call(websocket: WebSocket) -> None:
    """One call; its path says what is measured."""
    kind = websocket.path_params["kind"]
    await websocket.accept()
    options: dict[str, Any] = {"audio_in_sample_rate": RATE, "audio_out_sample_rate": RATE}
    params = FastAPIWebsocketParams(
        audio_in_enabled=True,
        audio_out_enabled=True,
        audio_out_10ms_chunks=2 if kind == "torrent" else 10,
        serializer=Commands(),
        **options,
    )
    transport = FastAPIWebsocketTransport(websocket, params)
    parts = [Ear(), Words(endless=kind == "talk"), Voice(torrent=kind == "torrent")]
    task = PipelineTask(
        Pipeline([transport.input(), *parts, transport.output()]), params=PipelineParams(**options), enable_rtvi=False
    )

    async def gone(*_: Any) -> None:
        await task.cancel()

    transport.add_event_handler("on_client_disconnected", gone)
    with contextlib.suppress(Exception):
        await PipelineRunner(handle_sigint=False).run(task)


if __name__ == "__main__":
    logger.remove()
    uvicorn.run(
        Starlette(routes=[WebSocketRoute("/{kind}", call)]),
        port=int(sys.argv[1]),
        log_level="error",
        ws="websockets-sansio",
        ws_per_message_deflate=False,
    )
