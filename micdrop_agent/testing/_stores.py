"""``check_store``: what every store of conversations has to do, as checks that run against any of them."""

from __future__ import annotations

import random
import uuid
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import anyio

from micdrop_agent.messages import Message, ToolCall, ToolResult
from micdrop_agent.store import CallInUseError, Change, UnknownCallError
from micdrop_agent.testing._scripted import Call, ScriptedAgent
from micdrop_agent.tools import tool

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractAsyncContextManager

    from micdrop_agent.messages import Item
    from micdrop_agent.store import CallLog, ConversationStore
    from micdrop_agent.testing._scripted import Act

    OpenStore: TypeAlias = Callable[[], AbstractAsyncContextManager[ConversationStore]]

__all__ = ["StoreContractError", "check_store"]

ITEMS: Final[tuple[Item, ...]] = (
    Message("system", "Be brief."),
    Message("user", "Where is the cat? ¿Dónde? 猫は? 🐈", {"at": 1.5, "tags": ["a", None, {"b": True}]}),
    ToolCall("1", "look", '{"where": "sofa"}', extra={"index": 0}),
    ToolResult("1", "look", '"there"'),
    Message("assistant", 'On the "sofa".\u2028\r\n\tThere.\x00', {"interrupted": True}),
    Message("user", "half a pair: \ud800", {}, extra={"unknown": [1, 2.5, "\u0001"]}),
)
"""One of each kind, with what is easily lost on the way."""

IDS: Final = ("a", "A", "a/b", "..", ".", "-", "a b", "%41", "ä", "a" * 200, "*", "{a}:b", "'; --", "0")
"""Ids of calls that a file name, a key or a query may take for something else."""


class StoreContractError(AssertionError):
    """A store does not do what ``ConversationStore`` asks for; the message says what."""


async def check_store(open_store: OpenStore) -> None:
    """Check a store of your own against the contract of ``ConversationStore``.

    Calls with fresh ids are stored and left behind. Run it on each event loop that the store serves::

        @pytest.mark.parametrize("backend", ["asyncio", "trio"])
        def test_my_store(backend, tmp_path):
            anyio.run(check_store, lambda: MyStore(tmp_path), backend=backend)

    Args:
        open_store: Opens the store, for ``async with``. It is called several times, also while another one
            is open: all of them are to show the same calls, as the workers of a server would.

    Raises:
        StoreContractError: What the store does wrong.
        Exception: What the store raised where it should not.
    """
    for check in (
        _a_new_call_is_empty,
        _every_change_arrives_in_its_place,
        _a_change_that_comes_again_is_stored_once,
        _a_change_is_stored_completely_or_not_at_all,
        _a_call_has_one_writer,
        _calls_do_not_mix,
        _many_calls_are_written_at_once,
        _a_cancelled_request_locks_nobody_out,
        _an_agent_goes_on_where_it_stopped,
    ):
        async with AsyncExitStack() as stack:
            stores = [await stack.enter_async_context(open_store()) for _ in range(2)]
            await check(*stores)


def _expect(condition: object, message: str) -> None:
    if not condition:
        raise StoreContractError(message)


def _new_id(name: str = "check") -> str:
    return f"{name} {uuid.uuid4().hex}"


async def _write(store: ConversationStore, call_id: str, *items: Item) -> None:
    log = await store.open_call(call_id)
    try:
        await log.apply([Change(log.number + 1, len(log.items), 0, items)])
    finally:
        await log.aclose()


async def _expect_items(store: ConversationStore, call_id: str, items: Sequence[Item], what: str) -> None:
    stored = list(await store.load(call_id))
    _expect(stored == list(items), f"{what}: load() gives {stored!r}, not {list(items)!r}")


async def _a_new_call_is_empty(store: ConversationStore, other: ConversationStore) -> None:
    call_id = _new_id()
    for place in (store, other):
        try:
            await place.load(call_id)
        except UnknownCallError:
            continue
        raise StoreContractError("load() of a call that does not exist raises UnknownCallError")
    log = await store.open_call(call_id)
    _expect(list(log.items) == [] and log.number == 0, "a new call has no items, and the number 0")
    await log.aclose()
    await log.aclose()


async def _every_change_arrives_in_its_place(store: ConversationStore, other: ConversationStore) -> None:
    chance = random.Random(1)  # noqa: S311 - the same changes every time
    call_id, items = _new_id(), list[Any]()
    for _ in range(4):
        log = await store.open_call(call_id)
        _expect(list(log.items) == items, f"a call that is opened again has {list(log.items)!r}, not {items!r}")
        number, left = log.number, 10
        while left:
            changes: list[Change] = []
            for _ in range(chance.randint(1, left)):
                number, left = number + 1, left - 1
                changes.append(_random_change(chance, number, len(items)))
                change = changes[-1]
                items[change.index : change.index + change.gone] = change.come
            await log.apply(changes)
            await _expect_items(store, call_id, items, "after changes")
        await log.aclose()
        await _expect_items(other, call_id, items, "another store of the same calls")
        log = await other.open_call(call_id)
        _expect(log.number == number, f"the number of the last change is {number}, not {log.number}")
        await log.aclose()


def _random_change(chance: random.Random, number: int, size: int) -> Change:
    index = chance.randint(0, size)
    gone = chance.randint(0, min(2, size - index))
    return Change(number, index, gone, tuple(chance.choice(ITEMS) for _ in range(chance.randint(0, 3))))


async def _a_change_that_comes_again_is_stored_once(store: ConversationStore, _: ConversationStore) -> None:
    call_id = _new_id()
    changes = [Change(number, number - 1, 0, (item,)) for number, item in enumerate(ITEMS, 1)]
    log = await store.open_call(call_id)
    await log.apply(changes[:3])
    await log.apply(changes)
    await log.apply(changes[2:4])
    await log.apply([])
    await _expect_items(store, call_id, ITEMS, "after changes that came twice")
    await log.aclose()


async def _a_change_is_stored_completely_or_not_at_all(store: ConversationStore, _: ConversationStore) -> None:
    call_id = _new_id()
    broken: Any = object()
    log = await store.open_call(call_id)
    await log.apply([Change(1, 0, 0, ITEMS[:2])])
    try:
        await log.apply([Change(2, 0, 1, (ITEMS[4], broken))])
    except Exception:  # noqa: BLE001 - foreign code; any error is right
        await _expect_items(store, call_id, ITEMS[:2], "after a change that failed")
    else:
        raise StoreContractError(
            "apply() raises when a change cannot be stored: one with an object() among its items was accepted. "
            "Encode the items, for example with wire.dump(), before anything is changed"
        )
    await log.apply([Change(2, 2, 0, ITEMS[2:])])
    await _expect_items(store, call_id, ITEMS, "after a change that failed and one that did not")
    await log.aclose()


async def _a_call_has_one_writer(store: ConversationStore, other: ConversationStore) -> None:
    call_id = _new_id()
    await _write(store, call_id, ITEMS[0])
    log = await store.open_call(call_id)
    for place in (store, other):
        try:
            await place.open_call(call_id)
        except CallInUseError:
            continue
        raise StoreContractError("a second writer of a call is refused with CallInUseError")
    await _expect_items(other, call_id, ITEMS[:1], "while a writer has the call open")
    await log.apply([Change(log.number + 1, 1, 0, (ITEMS[1],))])
    await log.aclose()
    await _write(other, call_id, ITEMS[2])
    await _write(store, call_id, ITEMS[3])
    await _expect_items(store, call_id, ITEMS[:4], "after the writers took turns")


async def _calls_do_not_mix(store: ConversationStore, other: ConversationStore) -> None:
    mark = uuid.uuid4().hex
    logs = [await store.open_call(call_id + mark) for call_id in IDS]
    for call_id, log in zip(IDS, logs, strict=True):
        await log.apply([Change(1, 0, 0, (Message("user", call_id),))])
    for log in logs:
        await log.aclose()
    for call_id in IDS:
        await _expect_items(other, call_id + mark, [Message("user", call_id)], f"the call {call_id!r}")


async def _many_calls_are_written_at_once(store: ConversationStore, other: ConversationStore) -> None:
    ids = [_new_id(f"{number}") for number in range(30)]

    async def write(place: ConversationStore, call_id: str) -> None:
        log = await place.open_call(call_id)
        for number in range(1, 6):
            await log.apply([Change(number, number - 1, 0, (Message("user", f"{call_id} {number}"),))])
        await log.aclose()

    async with anyio.create_task_group() as tasks:
        for number, call_id in enumerate(ids):
            tasks.start_soon(write, (store, other)[number % 2], call_id)
    for call_id in ids:
        await _expect_items(
            store, call_id, [Message("user", f"{call_id} {n}") for n in range(1, 6)], "one of many calls"
        )


async def _a_cancelled_request_locks_nobody_out(store: ConversationStore, other: ConversationStore) -> None:
    for delay in (0.0, 0.0001, 0.0005, 0.001, 0.002, 0.005):
        call_id = _new_id()
        with anyio.move_on_after(delay):
            log = await store.open_call(call_id)
            await log.aclose()
        log = await _open_soon(other, call_id)
        changes = [Change(log.number + 1, len(log.items), 0, ITEMS[:2]), Change(log.number + 2, 2, 0, ITEMS[2:])]
        with anyio.move_on_after(delay):
            await log.apply(changes)
        await log.apply(changes)
        await _expect_items(store, call_id, ITEMS, "after a cancelled apply() that was repeated")
        with anyio.move_on_after(delay):
            await log.aclose()
        await log.aclose()
        log = await _open_soon(store, call_id)
        await log.aclose()


async def _open_soon(store: ConversationStore, call_id: str) -> CallLog:
    """Open a call whose last writer was cancelled; what it had under way may take a moment to end."""
    for _ in range(100):
        try:
            return await store.open_call(call_id)
        except CallInUseError:
            await anyio.sleep(0.02)
    raise StoreContractError("a call is locked after the request of its last writer was cancelled")


@tool
def look() -> str:
    """Look."""
    return "a cat"


async def _an_agent_goes_on_where_it_stopped(store: ConversationStore, other: ConversationStore) -> None:
    call_id = _new_id()
    for number, place in enumerate((store, other, store)):
        script: list[Act] = ["Let me see.", Call("look"), "A cat."]
        async with ScriptedAgent(script, tools=[look], system_prompt="Be brief.") as agent:
            recorder = await agent.attach(place, call_id)
            _expect(recorder.resumed == (0 if number == 0 else 1 + 5 * number), "attach() resumes all that was stored")
            agent.add_user_message("What is there?")
            await agent.answer().wait()
        await _expect_items(other, call_id, list(agent.conversation), "after the agent was left")
