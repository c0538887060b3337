"""The call server of this library in ``call_sockets.py``: no models, no speech services, every word known."""

from __future__ import annotations

import struct
import sys
import time
from typing import TYPE_CHECKING

import anyio
import uvicorn
from starlette.applications import Starlette
from starlette.routing import WebSocketRoute

from micdrop_agent import Agent
from micdrop_agent.call import AsItComes, Call, starlette_link

if TYPE_CHECKING:
    from anyio.abc import ObjectReceiveStream
    from starlette.websockets import WebSocket

    from micdrop_agent import Turn
    from micdrop_agent.call import Hearing, Voice

SILENCE = bytes(3192)


class Words(Agent):
    """Says a sentence, or a word every 100 ms until it is interrupted."""

    def __init__(self, *, endless: bool) -> None:
        super().__init__()
        self.endless = endless

    async def generate_answer(self, turn: Turn) -> None:
        """Say it."""
        await turn.write("This is what I have to say. ")
        while self.endless:
            await anyio.sleep(0.1)
            await turn.write("more ")


class Ear:
    """Knows the text as soon as the audio has ended."""

    async def transcribe(self, audio: ObjectReceiveStream[bytes], hearing: Hearing) -> None:
        """Wait for the end."""
        async for _ in audio:
            pass
        hearing.final("What do you have to say?")


class Stamping:
    """100 ms for each piece of text; the first eight bytes are the time."""

    async def synthesize(self, text: ObjectReceiveStream[str], voice: Voice) -> None:
        """Say all of it."""
        async for _ in text:
            await voice.write(struct.pack("<q", time.perf_counter_ns()) + SILENCE)


class Torrent:
    """20 ms of audio every 2 ms, as a service that is faster than speech."""

    async def synthesize(self, text: ObjectReceiveStream[str], voice: Voice) -> None:
        """Say all of it."""
        async for _ in text:
            while not voice.fenced:
                await voice.write(SILENCE[:640])
                await anyio.sleep(0.002)


async def call(websocket: WebSocket) -> None:
    """One call; its path says what is measured."""
    kind = websocket.path_params["kind"]
    async with starlette_link(websocket) as link:
        agent, tts = Words(endless=kind == "talk"), Torrent() if kind == "torrent" else Stamping()
        await Call(link, agent=agent, stt=Ear(), tts=tts, speech=AsItComes).run()


if __name__ == "__main__":
    uvicorn.run(
        Starlette(routes=[WebSocketRoute("/{kind}", call)]),
        port=int(sys.argv[1]),
        log_level="error",
        ws="websockets-sansio",
        loop="uvloop",
        ws_per_message_deflate=False,
    )
