"""Where a user's client lives: its pool belongs to the event loop in which it was used first.

A connection of a loop that has ended can be neither used nor closed in another one, and what says so
("Event loop is closed", "no running event loop") comes from the depth of a library.
"""

from __future__ import annotations

import contextlib
from typing import Any, Final
from weakref import WeakKeyDictionary

import anyio.lowlevel

__all__ = ["check_home"]

_homes: Final[WeakKeyDictionary[Any, object]] = WeakKeyDictionary()


def check_home(client: object) -> None:
    """Refuse ``client`` in any other event loop than its first one; all agents of a process look here.

    Raises:
        RuntimeError: It was used in another event loop before.
    """
    loop = anyio.lowlevel.current_token()
    with contextlib.suppress(TypeError):  # a wrapper that cannot be referred to weakly: nothing is known
        if _homes.setdefault(client, loop) != loop:
            raise RuntimeError(
                f"the {type(client).__name__} given as client= was used in another event loop before; "
                "make a new one in each asyncio.run or trio.run"
            )
