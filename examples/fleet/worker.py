"""One worker of a fleet: a call server whose calls move to another worker when this one dies.

    browser ── WebSocket ──▶ HAProxy ──▶ this worker ──▶ Redis, Valkey or PostgreSQL: the calls

It runs under any ASGI server; ``run.py`` starts several behind HAProxy:

    STORE_URL=redis://127.0.0.1:6379/0 uvicorn worker:app

The model, the speech services and their "language" are stand-ins (``stand_ins.py``) that need no key and no network:
put yours there.
"""

from __future__ import annotations

import logging
import os
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from stand_ins import Clerk, Ears, Mouth
from starlette.applications import Starlette
from starlette.routing import Mount, WebSocketRoute

from micdrop_agent import Message
from micdrop_agent.call import Call, Drain, starlette_link
from micdrop_agent.store import PostgresStore, RedisStore

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from starlette.websockets import WebSocket

    from micdrop_agent import Agent
    from micdrop_agent.store import ConversationStore

STORE = os.environ.get("STORE_URL") or os.environ.get("REDIS_URL", "redis://127.0.0.1:6379/0")
"""Redis or Valkey (``redis://``), or PostgreSQL (``postgresql://``)."""
LEASE = float(os.environ.get("FLEET_LEASE", "10"))
"""Seconds after which a worker that stands still has lost its calls."""

GRACE = float(os.environ.get("FLEET_GRACE", "25"))
"""Seconds that calls have to reach the end of a turn when the worker is stopped."""
CAPACITY = int(os.environ.get("FLEET_CAPACITY", "100"))
"""Calls of one worker; more are refused, and the balancer tries another one."""

logging.basicConfig(format=f"{os.getpid()} %(levelname)s %(name)s: %(message)s")


async def talk(websocket: WebSocket) -> None:
    """One connection of a call. The client of a worker that died comes back, with the same id, to another one."""
    store: ConversationStore = websocket.app.state.store
    async with starlette_link(websocket) as link, Clerk(system_prompt="You take orders.") as agent:
        # The store has take_over=True: a client that connects again is the proof that the worker before is gone.
        recorder = await agent.attach(store, websocket.path_params["call_id"])
        call = Call(
            link,
            agent=agent,
            stt=Ears(),
            tts=Mouth(),
            first_message=None if recorder.resumed else "Hello!",
            generate_first_message=recorder.resumed > 0 and waits_for_an_answer(agent),
        )
        await drain.run(call)


def waits_for_an_answer(agent: Agent) -> bool:
    """Whether the worker before died while it owed an answer."""
    last = agent.conversation[-1]
    return not isinstance(last, Message) or last.role == "user"


@asynccontextmanager
async def lifespan(app: Starlette) -> AsyncGenerator[None]:
    """What all calls of this worker share."""
    kind = PostgresStore if STORE.startswith("postgres") else RedisStore
    async with kind(STORE, take_over=True, lease=LEASE) as store:
        app.state.store = store
        yield


# On SIGTERM no new call is taken, each ends with its turn, and its client comes back elsewhere. GET /fleet/ready is for
# the balancer, /fleet/load and /fleet/metrics say how full the worker is.
drain = Drain(grace=GRACE, capacity=CAPACITY, token=os.environ.get("MICDROP_DRAIN_TOKEN"))
app = drain.wrap(
    Starlette(
        routes=[WebSocketRoute("/call/{call_id}", talk), Mount("/fleet", drain.endpoint)],
        lifespan=lifespan,
    )
)
