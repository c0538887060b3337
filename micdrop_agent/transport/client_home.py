"""What all agents of a process have to know of a client that a user handed in.

A client's pool belongs to the event loop in which it was used first. A connection of a loop that has ended
can be neither used nor closed in another one, and what says so ("Event loop is closed", "no running event
loop") comes from the depth of a library.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final
from weakref import WeakKeyDictionary

import anyio.lowlevel
import attrs

from micdrop_agent.transport.draining import Draining

__all__ = ["ClientHome", "client_home"]


@attrs.define(eq=False)
class ClientHome:
    """Where a client is at home, and whether one of its connections is about to come back."""

    loop: object
    draining: Draining = attrs.field(factory=Draining)


_homes: Final[WeakKeyDictionary[Any, ClientHome]] = WeakKeyDictionary()


def client_home(client: object) -> ClientHome:
    """What is known of ``client``, which may be used in its first event loop only.

    Raises:
        RuntimeError: It was used in another event loop before.
    """
    loop = anyio.lowlevel.current_token()
    home = ClientHome(loop)
    with suppress(TypeError):  # a wrapper that cannot be referred to weakly: nothing is known
        home = _homes.setdefault(client, home)
    if home.loop != loop:
        raise RuntimeError(
            f"the {type(client).__name__} given as client= was used in another event loop before; "
            "make a new one in each asyncio.run or trio.run"
        )
    return home
