"""The server of ``soak_voice.py``: real speech services, real sockets, and an agent whose words are known."""

from __future__ import annotations

import threading
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route, WebSocketRoute

from micdrop_agent import Agent
from micdrop_agent.call import Call, FallbackSTT, FallbackTTS, starlette_link
from micdrop_agent.call.local import EspeakTTS, WhisperSTT

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from anyio.abc import ObjectReceiveStream
    from starlette.requests import Request
    from starlette.websockets import WebSocket

    from micdrop_agent import Turn
    from micdrop_agent.call import Voice


class Teller(Agent):
    """Repeats what it has heard, and goes on for a while."""

    async def generate_answer(self, turn: Turn) -> None:
        """Say it word by word."""
        said = next((item.content for item in reversed(turn.conversation) if item.role == "user"), "")
        for word in f"You said: {said} Let me think about that, it is a long story. It began on a Monday.".split():
            await turn.write(f"{word} ")
            await anyio.sleep(0.02)


class Broken:
    """A voice that fails at the second sentence."""

    async def synthesize(self, text: ObjectReceiveStream[str], voice: Voice) -> None:
        """Say a tenth of a second, and give up."""
        async for _ in text:
            await voice.write(bytes(3200))
            raise ConnectionError("the service has gone")


async def call(websocket: WebSocket) -> None:
    """One call."""
    stt: WhisperSTT = websocket.app.state.stt
    async with starlette_link(websocket) as link:
        tts = FallbackTTS([Broken(), EspeakTTS()])
        await Call(link, agent=Teller(), stt=FallbackSTT([stt]), tts=tts, first_message="Hello!").run()


async def state(_request: Request) -> JSONResponse:
    """What the process has at this moment."""
    return JSONResponse({"tasks": len(anyio.get_running_tasks()), **_counted()})


def _counted() -> dict[str, int]:
    status = Path("/proc/self/status").read_text().split()
    return {
        "threads": threading.active_count(),
        "handles": len(list(Path("/proc/self/fd").iterdir())),
        "processes": sum(len(one.read_text().split()) for one in Path("/proc/self/task").glob("*/children")),
        "kib": int(status[status.index("VmRSS:") + 1]),
    }


@asynccontextmanager
async def lifespan(app: Starlette) -> AsyncGenerator[None]:
    """The speech-to-text is shared by all calls."""
    async with WhisperSTT() as app.state.stt:
        yield


app = Starlette(routes=[Route("/state", state), WebSocketRoute("/call", call)], lifespan=lifespan)
