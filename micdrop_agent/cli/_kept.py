"""``--store``: the call in a SQLite file, kept while it runs and gone on with later."""

from __future__ import annotations

import secrets
from datetime import datetime
from typing import TYPE_CHECKING

from micdrop_agent.store import SqliteStore, UnknownCallError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path
    from typing import Self

    from micdrop_agent._core.agent import Agent
    from micdrop_agent.messages import Item

__all__ = ["Kept"]


class Kept:
    """One call of the store in ``file``; an async context manager.

    Args:
        file: The store; it is made if it is missing.
        call: The call; ``None``: a new one.
        note: Tells the user.
    """

    def __init__(self, file: Path, call: str | None, note: Callable[[str], object]) -> None:
        self._file = file
        self._store = SqliteStore(file)
        self._named = call is not None
        self._call = _new_id() if call is None else call
        self._note = note
        self._told: str | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self._store.aclose()

    async def load(self) -> Sequence[Item]:
        """The conversation so far; empty for a new call.

        Raises:
            StoreError: The store cannot be read.
        """
        try:
            return await self._store.load(self._call)
        except UnknownCallError:
            return ()

    async def attach(self, agent: Agent) -> None:
        """Keep what ``agent`` says from now on.

        Raises:
            CallInUseError: Another writer has this call open.
            StoreError: The store cannot be written.
        """
        kept = await agent.attach(self._store, self._call, on_error=self._failed)
        if kept.resumed:
            self._note(f"call {self._call} goes on; it has {kept.resumed} items")
        elif self._named:
            self._note(f"call {self._call} is new in {self._file}")
        else:
            self._note(f"call {self._call} is new; to go on with it: --store {self._file} --call {self._call}")

    def _failed(self, error: Exception) -> None:
        told = str(error)
        if told != self._told:  # each change that fails would say the same
            self._told = told
            self._note(f"not stored yet: {told}")


def _new_id() -> str:
    """An id made from the time, which differs also within one second."""
    return f"{datetime.now().astimezone():%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"
