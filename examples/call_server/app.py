"""A call server: WebSocket endpoints with one agent per call, and a web page to write or talk to it.

    page ◀── JSON ───▶ /call/{id}  ──▶ async with agent ──▶ models (of this machine, unless you have keys)
         ◀── audio ──▶ /voice/{id} ──────────┘ └──▶ calls.db: a reload, or a restart of the server, resumes the call

Run it in this folder, on asyncio or on Trio, and open http://127.0.0.1:8000:

    uvicorn app:app
    hypercorn -k trio -b 127.0.0.1:8000 app:app

With OPENAI_API_KEY or MISTRAL_API_KEY in the environment real models answer.
"""

from __future__ import annotations

import math
import os
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import anyio
from models import choose_agents
from starlette.applications import Starlette
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect
from voice import speech_parts, voice_call

from micdrop_agent import AgentSwitched, Event, FallbackAgent, tool, wire
from micdrop_agent.store import CallInUseError, SqliteStore, UnknownCallError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from anyio.abc import ObjectReceiveStream
    from anyio.streams.memory import MemoryObjectSendStream
    from starlette.requests import Request

    from micdrop_agent import Agent, Answer, Tool

    Outbox: TypeAlias = MemoryObjectSendStream[dict[str, Any]]

PAGE = Path(__file__).with_name("page.html")
SCRIPTS = ("voice.js", "gate.js")
DATABASE = os.environ.get("CALLS_DB", str(Path(__file__).with_name("calls.db")))
LONGEST_TEXT = 2000
"""Characters that one turn of a caller may have."""
RELOAD = 3.0
"""Seconds in which the connection before a reload has to let go of its call."""


@tool
async def opening_hours(day: str) -> dict[str, str]:
    """When the restaurant is open on a day of the week."""
    await anyio.sleep(0.3)  # stands for a question to another system
    return {"day": day, "hours": "closed" if day.lower() == "sunday" else "18:00 to 23:00"}


@tool(on_cancel="finish")
async def book_table(day: str, people: int) -> dict[str, Any]:
    """Book a table; once begun it is finished, also when the caller interrupts."""
    await anyio.sleep(0.8)
    return {"booked": True, "day": day, "people": people}


async def call(socket: WebSocket) -> None:
    """One call: it lasts as long as its WebSocket."""
    await socket.accept()
    async with new_agent(socket) as agent:
        try:
            await resume(agent, socket.app.state.store, socket.path_params["call_id"])
        except CallInUseError:
            await socket.send_json({"type": "in_use"})
            await socket.close()
        else:
            await converse(agent, socket)


async def spoken_call(socket: WebSocket) -> None:
    """The same in speech."""
    parts = socket.app.state.speech
    async with new_agent(socket) as agent:
        try:
            await resume(agent, socket.app.state.store, socket.path_params["call_id"])
        except CallInUseError:
            await socket.close(4409, "open in another window")
        else:
            await (socket.close(4404, "no voice here") if isinstance(parts, str) else voice_call(socket, agent, parts))


def new_agent(socket: WebSocket) -> FallbackAgent:
    """The agent of one call."""
    tools: list[Tool] = [opening_hours, book_table]
    seconds: float = socket.app.state.patience
    return FallbackAgent(socket.app.state.factories, first_chunk_timeout=seconds, prefer="first", tools=tools)


async def converse(agent: Agent, socket: WebSocket) -> None:
    """Listen and speak, until the page goes away."""
    # What tasks have to say goes through one stream and one writer, so that it stays in order.
    outbox, lines = anyio.create_memory_object_stream[dict[str, Any]](math.inf)
    with outbox, lines:
        async with anyio.create_task_group() as tasks:
            outbox.send_nowait({"type": "history", "items": wire.dump(agent.conversation)})
            tasks.start_soon(write, lines, socket)
            tasks.start_soon(report, agent.events(), outbox)
            number = 0
            async for said in requests_of(socket):
                # The page tells what it has shown of the answer: this much was heard, and is stored.
                heard = said.get("heard")
                agent.cancel(heard=heard if isinstance(heard, str) else None)
                text = str(said.get("say", ""))[:LONGEST_TEXT].strip()
                if text:
                    number += 1
                    agent.add_user_message(text)
                    tasks.start_soon(speak, agent.answer(), number, outbox)
            tasks.cancel_scope.cancel()


async def resume(agent: Agent, store: SqliteStore, call_id: str) -> None:
    """Load the call and keep it from now on; after a reload the connection before may still hold it."""
    deadline = anyio.current_time() + RELOAD
    while True:
        try:
            await agent.attach(store, call_id)
        except CallInUseError:
            if anyio.current_time() > deadline:
                raise
            await anyio.sleep(0.1)
        else:
            return


async def requests_of(socket: WebSocket) -> AsyncGenerator[dict[str, Any]]:
    """What the page sends, until it goes away; anything that is no JSON object ends the call."""
    try:
        while isinstance(said := await socket.receive_json(), dict):
            yield said
    except (WebSocketDisconnect, ValueError):
        return


async def speak(answer: Answer, number: int, outbox: Outbox) -> None:
    """Send an answer as it comes."""
    outbox.send_nowait({"type": "answer", "number": number})
    error: Exception | None = None
    try:
        async for chunk in answer:
            outbox.send_nowait({"type": "chunk", "number": number, "text": chunk})
    except Exception as failure:  # noqa: BLE001 - whatever failed, the call goes on
        error = failure
    result = await answer.wait()
    outbox.send_nowait(
        {
            "type": "end",
            "number": number,
            "status": result.status,
            "firstChunk": result.time_to_first_chunk,
            "seconds": result.duration,
            "error": None if error is None else str(error),
        }
    )


async def report(events: ObjectReceiveStream[Event], outbox: Outbox) -> None:
    """Send what happens in the call: messages, tool calls, switches, its end."""
    async for event in events:
        if isinstance(event, AgentSwitched):
            line = {"type": "switch", "from": event.from_, "to": event.to, "reason": str(event.reason)}
            outbox.send_nowait({**line, "restarted": event.restarted})
        elif (dumped := wire.dump_event(event)) is not None:
            outbox.send_nowait({"type": "event", **dumped})


async def write(lines: ObjectReceiveStream[dict[str, Any]], socket: WebSocket) -> None:
    """The only writer of the WebSocket."""
    try:
        async for line in lines:
            await socket.send_json(line)
    except (WebSocketDisconnect, RuntimeError):
        return  # the page is gone; the reader notices too and ends the call


async def page(_request: Request) -> Response:
    """The web page."""
    return FileResponse(PAGE, headers={"cache-control": "no-store"})


async def script(request: Request) -> Response:
    """What the page needs for the voice."""
    return FileResponse(PAGE.with_name(request.url.path.removeprefix("/")), headers={"cache-control": "no-store"})


async def voice_offer(request: Request) -> Response:
    """Whether the server can talk, and if not, why."""
    parts = request.app.state.speech
    return JSONResponse({"available": not isinstance(parts, str), "why": parts if isinstance(parts, str) else None})


async def stored(request: Request) -> Response:
    """The stored conversation of a call, as Micdrop's JSON."""
    try:
        return JSONResponse(wire.dump(await request.app.state.store.load(request.path_params["call_id"])))
    except UnknownCallError:
        return JSONResponse({"error": "no such call"}, status_code=404)


@asynccontextmanager
async def lifespan(app: Starlette) -> AsyncGenerator[None]:
    """What all calls share: the store, and the two servers that stand for models when there is no key."""
    async with AsyncExitStack() as stack:
        app.state.store = await stack.enter_async_context(SqliteStore(DATABASE))
        app.state.factories, app.state.patience = await stack.enter_async_context(choose_agents())
        app.state.speech = await stack.enter_async_context(speech_parts())
        yield


app = Starlette(
    routes=[
        Route("/", page),
        *(Route(f"/{name}", script) for name in SCRIPTS),
        Route("/voice", voice_offer),
        Route("/calls/{call_id}", stored),
        WebSocketRoute("/call/{call_id}", call),
        WebSocketRoute("/voice/{call_id}", spoken_call),
    ],
    lifespan=lifespan,
)
