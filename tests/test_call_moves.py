"""A call whose store is shared by workers: it closes when another one has it, and leaves what was heard when it dies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import anyio
import anyio.lowlevel
import pytest

from micdrop_agent import CallMovedError, Message, StoreError, ToolCall, ToolResult, tool
from micdrop_agent.call import AsItComes, Call, starlette_link
from micdrop_agent.testing import Call as ToolUse
from micdrop_agent.testing import ScriptedAgent, ScriptedSTT, memory_link, run_virtual

if TYPE_CHECKING:
    from collections.abc import Sequence

    from anyio.abc import ObjectReceiveStream

    from micdrop_agent.call import Voice
    from micdrop_agent.messages import Item
    from micdrop_agent.store import Change

    Backend = Literal["asyncio", "trio"]

FRAME = bytes(3200)


class SharedStore:
    """One call in memory, which another worker may take."""

    def __init__(self, delay: float = 0.0) -> None:
        self.number = 0
        self.items: Sequence[Item] = ()
        self.delay = delay
        self.taken = anyio.Event()
        self.applied: list[Change] = []
        self.fails = False
        self.quietly_taken = False

    async def open_call(self, call_id: str) -> SharedStore:
        return self

    async def load(self, call_id: str) -> Sequence[Item]:
        return self.items

    async def apply(self, changes: Sequence[Change]) -> None:
        await anyio.sleep(self.delay)
        if self.fails:
            raise StoreError("away", retryable=True)
        if self.taken.is_set() or self.quietly_taken:
            raise CallMovedError("a")
        for change in changes:
            if change.number > self.number:
                self.number = change.number
                self.applied.append(change)
                behind = self.items[change.index + change.gone :]
                self.items = [*self.items[: change.index], *change.come, *behind]

    async def hold(self) -> None:
        await self.taken.wait()
        raise CallMovedError("a")

    async def aclose(self) -> None:
        await anyio.lowlevel.checkpoint()


class Words:
    """Says a word each 200 ms."""

    async def synthesize(self, text: ObjectReceiveStream[str], voice: Voice) -> None:
        async for piece in text:
            for word in piece.split():
                await voice.write(FRAME, word)
                await anyio.sleep(0.2)


def spoken(items: Sequence[Item]) -> str:
    return " | ".join(item.content for item in items if isinstance(item, Message) and item.role != "system")


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("pause", [0.0, 1.0], ids=["written at once", "written slowly"])
def test_at_every_moment_the_store_has_what_was_heard(backend: Backend, pause: float) -> None:
    store = SharedStore()
    seen: list[tuple[float, str, bool]] = []

    async def scenario() -> list[Item]:
        link, client = memory_link()
        async with ScriptedAgent(["One two three four. ", pause, "Five six."], []) as agent:
            await agent.attach(store, "a")
            parts: Any = {"stt": ScriptedSTT(["Hello?"]), "tts": Words(), "speech": AsItComes}
            call = Call(link, agent=agent, first_message="Good day.", **parts)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(call.run)
                for tick in range(35):
                    if tick == 10:
                        client.speak()
                    await anyio.sleep(0.1)
                    last = store.items[-1]
                    cut = isinstance(last, Message) and bool((last.metadata or {}).get("interrupted"))
                    seen.append((tick / 10, spoken(store.items), cut))
                client.close()
            return list(agent.conversation)

    conversation = run_virtual(backend, scenario)
    texts = [text for _, text, _ in seen]
    # The answer is heard for seconds: each state is one word longer than the one before.
    growing = [text for text in dict.fromkeys(texts) if "One" in text]
    assert [len(text.split()) for text in growing] == list(range(6, 6 + len(growing)))
    assert len(growing) >= 5
    assert all(growing[-1].startswith(text.rstrip(".")) for text in growing)
    assert all(cut for _, text, cut in seen if "One" in text and "six" not in text)
    assert store.items == conversation
    assert spoken(conversation).startswith("Good day. | Hello? | One two three four. Five six.")


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_what_is_stored_of_a_call_that_was_cut_is_what_the_conversation_has(backend: Backend) -> None:
    """A barge-in, and then the end: nothing of the view is left behind."""
    store = SharedStore(delay=0.01)

    async def scenario() -> list[Item]:
        link, client = memory_link()
        async with ScriptedAgent(*[["One two three four five six seven."]] * 3) as agent:
            await agent.attach(store, "a")
            call = Call(link, agent=agent, stt=ScriptedSTT(["Hello?"], ["Stop."]), tts=Words())
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(call.run)
                for _ in range(2):
                    client.speak()
                    await anyio.sleep(0.9)
                client.close()
            return list(agent.conversation)

    conversation = run_virtual(backend, scenario)
    assert store.items == conversation
    assert "Stop." in spoken(conversation)
    assert "seven" not in spoken(conversation)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_an_agent_that_is_left_before_its_call_stores_its_conversation_all_the_same(backend: Backend) -> None:
    store = SharedStore(delay=0.01)

    async def scenario() -> list[Item]:
        link, client = memory_link()
        left: list[Item] = []
        async with anyio.create_task_group() as tasks:
            async with ScriptedAgent(["One two three four five six seven."]) as agent:
                await agent.attach(store, "a")
                call = Call(link, agent=agent, stt=ScriptedSTT(["Hello?"]), tts=Words(), speech=AsItComes)
                tasks.start_soon(call.run)
                client.speak()
                await anyio.sleep(0.95)
            client.close()
            left += agent.conversation
        return left

    conversation = run_virtual(backend, scenario)
    assert "three" in spoken(conversation)
    assert store.items == conversation


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_call_that_another_worker_has_closes_with_1001_at_once(backend: Backend) -> None:
    store, socket = SharedStore(), Socket()
    ran: list[str] = []

    @tool(on_cancel="finish")
    async def book() -> str:
        """Book."""
        ran.append("book")
        await anyio.lowlevel.checkpoint()
        return "done"

    async def scenario() -> None:
        async with ScriptedAgent(["One two three. ", 5.0, ToolUse("book")], tools=[book]) as agent:
            await agent.attach(store, "a")
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(serve, agent)
                await anyio.sleep(1)
                store.taken.set()
                await anyio.sleep(0.01)
                assert socket.closed == 1001
                assert not agent.answering
                await anyio.sleep(10)

    async def serve(agent: ScriptedAgent) -> None:
        link: Any = starlette_link(socket)  # type: ignore[arg-type]  # a socket in memory
        async with link:
            await Call(link, agent=agent, stt=ScriptedSTT(), tts=Words(), generate_first_message=True).run()

    run_virtual(backend, scenario)
    assert not ran
    # All of it that is stored was stored before: the rest is the other worker's to store.
    assert spoken(store.items).strip() in "One two three."


class Socket:
    """A WebSocket of Starlette whose client says nothing."""

    closed: int | None = None

    async def accept(self) -> None:
        await anyio.lowlevel.checkpoint()

    async def receive(self) -> Any:
        await anyio.sleep_forever()

    async def send_text(self, _text: str) -> None:
        await anyio.lowlevel.checkpoint()

    async def send_bytes(self, _data: bytes) -> None:
        await anyio.lowlevel.checkpoint()

    async def close(self, code: int, _reason: str) -> None:
        await anyio.lowlevel.checkpoint()
        self.closed = code


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("parallel", [True, False], ids=["together", "in turn"])
def test_a_tool_starts_when_its_call_is_stored(backend: Backend, *, parallel: bool) -> None:
    store = SharedStore(delay=0.05)
    stored_before: list[bool] = []

    @tool
    def book(number: int) -> str:
        """Book."""
        stored_before.append(
            any(isinstance(item, ToolCall) and f'"number": {number}' in item.parameters for item in store.items)
        )
        return "done"

    async def scenario() -> None:
        script: list[Any] = ["Well. ", [ToolUse("book", {"number": 1}), ToolUse("book", {"number": 2})], "Done."]
        async with ScriptedAgent(script, tools=[book], parallel_tools=parallel) as agent:
            await agent.attach(store, "a")
            agent.add_user_message("Book!")
            await agent.answer().wait()

    run_virtual(backend, scenario)
    assert stored_before == [True, True]


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("trouble", ["slow", "away", "taken"])
def test_a_tool_does_not_wait_long_for_a_store_and_does_not_run_for_another_worker(
    backend: Backend, trouble: str
) -> None:
    store, started = SharedStore(), list[float]()

    @tool
    def book() -> str:
        """Book."""
        started.append(anyio.current_time())
        return "done"

    async def scenario() -> tuple[float, Sequence[Item]]:
        script: list[Any] = [ToolUse("book"), ToolUse("book"), "Done."]
        async with ScriptedAgent(script, tools=[book]) as agent:
            await agent.attach(store, "a", close_timeout=0.1)
            store.delay = 60.0 if trouble == "slow" else 0.0
            store.fails = trouble == "away"
            agent.add_user_message("Book!")
            store.quietly_taken = trouble == "taken"
            began = anyio.current_time()
            await agent.answer().wait()
            store.delay, store.fails = 0.0, False
            return began, list(agent.conversation)

    try:
        began, items = run_virtual(backend, scenario)
    except CallMovedError:
        assert trouble == "taken"
        assert not started
        return
    assert trouble != "taken"
    assert len(started) == 2
    assert started[-1] - began < 0.6  # once, not for each tool
    assert all(isinstance(item, ToolResult) for item in items[3:6:2])
