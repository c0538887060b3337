"""A call server for tests with real sockets: no models, no speech services, every answer known.

uvicorn --app-dir tests call_app:app          hypercorn -k trio call_app:app
"""

from __future__ import annotations

import os
from array import array
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Mount, Route, WebSocketRoute
from starlette.staticfiles import StaticFiles

from micdrop_agent import Agent
from micdrop_agent.call import Call, CallRefusedError, params, starlette_link

if TYPE_CHECKING:
    from anyio.abc import ObjectReceiveStream
    from starlette.requests import Request
    from starlette.websockets import WebSocket

    from micdrop_agent import Turn
    from micdrop_agent.call import Hearing, Voice

TONE = array("h", [8000 if sample % 40 < 20 else -8000 for sample in range(1600)]).tobytes()
"""100 ms of 400 Hz."""

results: list[dict[str, Any]] = []
connections = 0


class Parrot(Agent):
    """Says how often the caller has spoken, and counts on until it is interrupted."""

    async def generate_answer(self, turn: Turn) -> None:
        said = [item for item in turn.conversation if item.role == "user"]
        await turn.write(f"That was turn {len(said)}. ")
        for number in range(20):
            await anyio.sleep(0.05)
            await turn.write(f"And {number}. ")


class Counter:
    """Hears how many frames there were."""

    async def transcribe(self, audio: ObjectReceiveStream[bytes], hearing: Hearing) -> None:
        heard = 0
        async for pcm in audio:
            heard += len(pcm)
        hearing.final(f"{heard} bytes")


class Whistle:
    """Says 100 ms of tone for each piece of text."""

    async def synthesize(self, text: ObjectReceiveStream[str], voice: Voice) -> None:
        async for _ in text:
            await voice.write(TONE)


async def talk(websocket: WebSocket) -> None:
    """A plain call."""
    async with starlette_link(websocket) as link:
        call = Call(link, agent=Parrot(), stt=Counter(), tts=Whistle(), first_message="Hello!")
        try:
            await call.run()
        finally:
            results.append({"turns": len(call.result.turns), "interruptions": call.result.interruptions})


async def talk_with_params(websocket: WebSocket) -> None:
    """A call that wants to know the language."""
    async with starlette_link(websocket) as link:
        given = await params(link, _checked, patience=0.5)
        call = Call(link, agent=Parrot(), stt=Counter(), tts=Whistle(), first_message=f"Hello in {given['lang']}")
        await call.run()


def _checked(given: Any) -> Any:
    if given.get("lang") == "crash":
        raise RuntimeError("a bug of the application")
    if given.get("lang") == "stranger":
        raise CallRefusedError(4401, "Unauthorized")
    return {"lang": given["lang"]}


async def restart(websocket: WebSocket) -> None:
    """The first client is sent away with 1001 once it has spoken, as by a restart; it comes back."""
    global connections  # noqa: PLW0603 - one number of one test server
    connections += 1
    first = connections == 1
    async with starlette_link(websocket) as link:
        call = Call(link, agent=Parrot(), stt=Counter(), tts=Whistle(), first_message=f"Connection {connections}")
        if not first:
            await call.run()
            return
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call.run)
            await anyio.sleep(1)
            call.stop()
        await link.close(1001)


async def state(_request: Request) -> JSONResponse:
    """What the process has at this moment."""
    return JSONResponse({"tasks": len(anyio.get_running_tasks()), "results": results, "handles": _handles()})


def _handles() -> int:
    folder = Path("/proc/self/fd")
    return len(list(folder.iterdir())) if folder.is_dir() else 0


app = Starlette(
    routes=[
        Route("/state", state),
        WebSocketRoute("/call", talk),
        WebSocketRoute("/params", talk_with_params),
        WebSocketRoute("/restart", restart),
        *([Mount("/page", StaticFiles(directory=os.environ["CALL_PAGE"]))] if "CALL_PAGE" in os.environ else []),
    ]
)
