"""A worker that drains, for tests with real servers and real signals.

uvicorn --app-dir tests drain_app:app          hypercorn -k trio --workers 0 drain_app:app
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import anyio
from call_app import Counter, Whistle
from starlette.applications import Starlette
from starlette.routing import Mount, WebSocketRoute
from starlette.websockets import WebSocketDisconnect

from micdrop_agent import Agent
from micdrop_agent.call import Call, Drain, starlette_link

if TYPE_CHECKING:
    from starlette.websockets import WebSocket

    from micdrop_agent import Turn

drain = Drain(grace=float(os.environ.get("GRACE", "2.5")), capacity=4, max_lag=None, token="secret")


class Counting(Agent):
    """Says something for a second and a half."""

    async def generate_answer(self, turn: Turn) -> None:
        for number in range(15):
            await turn.write(f"And {number}. ")
            await anyio.sleep(0.02)


async def talk(websocket: WebSocket) -> None:
    """A call."""
    async with starlette_link(websocket) as link:
        await drain.run(Call(link, agent=Counting(), stt=Counter(), tts=Whistle(), first_message="Hello!"))


async def plain(websocket: WebSocket) -> None:
    """A WebSocket that knows nothing of drains, and echoes."""
    await websocket.accept()
    try:
        while True:
            await websocket.send_text(await websocket.receive_text())
    except WebSocketDisconnect:
        return


app = drain.wrap(
    Starlette(routes=[Mount("/fleet", drain.endpoint), WebSocketRoute("/call", talk), WebSocketRoute("/plain", plain)])
)


if __name__ == "__main__":  # a program that starts its server itself, on Trio
    import sys

    import trio
    from hypercorn.config import Config
    from hypercorn.trio import serve

    config = Config()
    config.bind = [sys.argv[1]]
    trio.run(lambda: serve(app, config, shutdown_trigger=drain.wait))  # type: ignore[arg-type]  # any ASGI application
