"""``check_store`` accepts the stores that keep the contract, and says what is wrong with each that does not."""

from __future__ import annotations

import copy
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from micdrop_agent import SqliteStore
from micdrop_agent.store import CallInUseError, UnknownCallError
from micdrop_agent.testing import StoreContractError, check_store

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence
    from pathlib import Path

    from micdrop_agent import Item
    from micdrop_agent.store import Change

pytestmark = pytest.mark.parametrize("backend", ["asyncio", "trio"])


@pytest.mark.parametrize("fsync", [True, False])
def test_the_sqlite_store_keeps_the_contract(backend: str, tmp_path: Path, *, fsync: bool) -> None:
    anyio.run(check_store, lambda: SqliteStore(tmp_path / "calls.db", fsync=fsync), backend=backend)
    assert list((tmp_path / "calls.db-locks").iterdir()) == []


class Faults:
    """A store in memory, with one fault of your choice."""

    def __init__(self, fault: str = "") -> None:
        self.fault = fault
        self.calls: dict[str, list[Any]] = {}
        self.numbers: dict[str, int] = {}
        self.held: set[str] = set()

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[Faults]:
        yield self

    async def open_call(self, call_id: str) -> FaultyLog:
        if call_id in self.held and self.fault != "two writers":
            raise CallInUseError(call_id, None)
        self.held.add(call_id)
        if self.fault == "locks when cancelled":
            await anyio.sleep(0.0002)
        key = call_id.casefold()[:40] if self.fault == "ids mix" else call_id
        self.calls.setdefault(key, [])
        return FaultyLog(self, key, call_id)

    async def load(self, call_id: str) -> Sequence[Item]:
        key = call_id.casefold()[:40] if self.fault == "ids mix" else call_id
        if key not in self.calls:
            if self.fault == "unknown is empty":
                return []
            raise UnknownCallError(call_id)
        items = list(self.calls[key])
        return items[:-1] if self.fault == "loses the last" else items


class FaultyLog:
    def __init__(self, store: Faults, key: str, call_id: str) -> None:
        self.store, self.key, self.call_id = store, key, call_id
        self.items = list(store.calls[key])
        self.number = 0 if store.fault == "forgets the number" else store.numbers.get(key, 0)

    async def apply(self, changes: Sequence[Change]) -> None:
        store, fault = self.store, self.store.fault
        items = store.calls[self.key] if fault == "half a change" else copy.copy(store.calls[self.key])
        for change in changes:
            if change.number <= store.numbers.get(self.key, 0) and fault != "twice":
                continue
            index = len(items) if fault == "appends only" else change.index
            del items[index : index + change.gone]
            for item in reversed(change.come):
                if fault != "takes anything" and not hasattr(item, "role"):
                    raise TypeError(item)
                items.insert(index, item)
            store.numbers[self.key] = change.number
        store.calls[self.key] = items

    async def aclose(self) -> None:
        if self.store.fault != "never closes":
            self.store.held.discard(self.call_id)


def test_a_store_of_ones_own_can_keep_the_contract(backend: str) -> None:
    store = Faults()
    anyio.run(check_store, store.open, backend=backend)
    assert len(store.calls) > 40


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("unknown is empty", "UnknownCallError"),
        ("loses the last", "load"),
        ("forgets the number", "number"),
        ("appends only", "load"),
        ("twice", "load"),
        ("half a change", "failed"),
        ("takes anything", "cannot be stored"),
        ("two writers", "second writer"),
        ("ids mix", "the call"),
        ("locks when cancelled", "locked"),
    ],
)
def test_each_fault_is_found(backend: str, fault: str, message: str) -> None:
    with pytest.raises(StoreContractError, match=message):
        anyio.run(check_store, Faults(fault).open, backend=backend)


def test_a_call_that_is_never_given_back_is_found(backend: str) -> None:
    with pytest.raises(CallInUseError):
        anyio.run(check_store, Faults("never closes").open, backend=backend)
