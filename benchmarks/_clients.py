"""Who is measured over the wire: raw sockets, bare httpx2, the openai SDK, and our agents.

All of them send the same conversation and hand out the same words, one by one, as an async generator:
that is what a caller's text-to-speech would loop over. The raw ones do the least that can be done: no
errors, no limits, no cancellation; they are the floor and no alternative.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from abc import ABC, abstractmethod
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, ClassVar

import anyio
import anyio.abc
from _harness import LAST, messages

from micdrop_agent import ChatAgent, Message, OpenaiAgent

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator

    from anyio.abc import TaskGroup, TaskStatus

    from micdrop_agent import Agent

PATHS = {"chat": "/chat/completions", "responses": "/responses"}


def body(api: str, model: str, count: int) -> dict[str, Any]:
    """A request with ``count`` messages, as the API wants it."""
    if api == "responses":
        return {"model": model, "input": messages(count), "stream": True}
    return {"model": model, "messages": messages(count), "stream": True, "stream_options": {"include_usage": True}}


def text_of(api: str, data: bytes | str) -> str:
    """The text of one event."""
    if api == "responses":
        event = json.loads(data)
        return event["delta"] if event["type"] == "response.output_text.delta" else ""
    if data[:1] not in {b"{", "{"}:
        return ""
    choices = json.loads(data)["choices"]
    return (choices[0]["delta"].get("content") or "") if choices else ""


class Client(ABC):
    """Somebody who can be asked.

    Args:
        url: Base URL of the provider.
        api: ``"chat"`` or ``"responses"``.
        count: Messages in the conversation.
    """

    def __init__(self, url: str, api: str, count: int) -> None:
        self.url = url
        self.api = api
        self.count = count

    @abstractmethod
    def chunks(self, model: str) -> AsyncGenerator[str, None]:
        """One answer."""

    async def prepare(self, model: str) -> None:  # noqa: B027 - most need nothing
        """What is done once per model, before its first answer."""

    async def close(self) -> None:  # noqa: B027 - the same
        """Give everything back."""


class Frames:
    """Takes chunked HTTP and server-sent events apart in one pass; trusts every byte."""

    def __init__(self, api: str) -> None:
        self.api = api
        self.data = b""
        self.head = False
        self.done = False

    def feed(self, data: bytes) -> list[str]:
        """The texts that ``data`` completes."""
        self.data += data
        if not self.head:
            _, blank, self.data = self.data.partition(b"\r\n\r\n")
            self.head = bool(blank)
        texts: list[str] = []
        at, data = 0, self.data
        while (end := data.find(b"\r\n", at)) >= 0:
            size = int(data[at:end], 16)
            if len(data) < end + size + 4:
                break
            at = end + size + 4
            if not size:
                self.done = True
                break
            start = data.find(b"data: ", end, at)
            if start >= 0 and (text := text_of(self.api, data[start + 6 : end + size])):
                texts.append(text)
        self.data = data[at:]
        return texts


class RawProtocol(asyncio.Protocol):
    """Hands what comes to whoever waits for it."""

    def __init__(self) -> None:
        self.transport: Any = None
        self.data = b""
        self.waiter: asyncio.Future[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection stands."""
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        """Something came."""
        self.data += data
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(None)

    async def read(self) -> bytes:
        """What came since the last call, at least one byte."""
        if not self.data:
            self.waiter = asyncio.get_running_loop().create_future()
            await self.waiter
        data, self.data = self.data, b""
        return data


class Raw(Client):
    """An ``asyncio.Protocol`` (on Trio: AnyIO's TCP stream) and HTTP by hand."""

    def __init__(self, url: str, api: str, count: int) -> None:
        super().__init__(url, api, count)
        self.port = int(url.rpartition(":")[2].partition("/")[0])
        self.kept: RawProtocol | anyio.abc.SocketStream | None = None

    def request(self, model: str) -> bytes:
        """The bytes of a request."""
        content = json.dumps(body(self.api, model, self.count)).encode()
        head = f"POST /v1{PATHS[self.api]} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(content)}\r\n\r\n"
        return head.encode() + content

    async def chunks(self, model: str) -> AsyncGenerator[str, None]:
        """One answer."""
        kept, self.kept = self.kept, None
        if kept is None:
            kept = await self.connect()
        frames = Frames(self.api)
        try:
            if isinstance(kept, RawProtocol):
                kept.transport.write(self.request(model))
            else:
                await kept.send(self.request(model))
            while not frames.done:
                for text in frames.feed(await (kept.read() if isinstance(kept, RawProtocol) else kept.receive())):
                    yield text
            self.kept = kept
        finally:
            if not frames.done:
                self.kept = kept
                await self.close()

    async def connect(self) -> RawProtocol | anyio.abc.SocketStream:
        """A connection of the loop's own kind."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return await anyio.connect_tcp("127.0.0.1", self.port)
        return (await loop.create_connection(RawProtocol, "127.0.0.1", self.port))[1]

    async def close(self) -> None:
        """Close the connection that was kept."""
        kept, self.kept = self.kept, None
        if isinstance(kept, RawProtocol):
            kept.transport.abort()
        elif kept is not None:
            await anyio.aclose_forcefully(kept)


class Httpx2(Client):
    """Bare httpx2, read as its documentation says."""

    def __init__(self, url: str, api: str, count: int) -> None:
        import httpx2  # noqa: PLC0415 - not every benchmark has it

        super().__init__(url, api, count)
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=None)
        self.client = httpx2.AsyncClient(headers={"authorization": "Bearer bench"}, timeout=60.0, limits=limits)

    async def chunks(self, model: str) -> AsyncGenerator[str, None]:
        """One answer."""
        content = body(self.api, model, self.count)
        async with self.client.stream("POST", self.url + PATHS[self.api], json=content) as response:
            response.raise_for_status()
            async for line in response.aiter_lines():
                if line.startswith("data: ") and (text := text_of(self.api, line[6:])):
                    yield text

    async def close(self) -> None:
        """Close the client."""
        await self.client.aclose()


class OpenaiSdk(Client):
    """The official SDK with ``stream=True``."""

    def __init__(self, url: str, api: str, count: int) -> None:
        import openai  # noqa: PLC0415 - heavy, and not every benchmark has it

        super().__init__(url, api, count)
        self.client = openai.AsyncOpenAI(api_key="bench", base_url=url, max_retries=0, timeout=60.0)

    async def chunks(self, model: str) -> AsyncGenerator[str, None]:
        """One answer."""
        content: Any = body(self.api, model, self.count)
        if self.api == "responses":
            async with await self.client.responses.create(**content) as events:
                async for event in events:
                    if event.type == "response.output_text.delta":
                        yield event.delta
            return
        async with await self.client.chat.completions.create(**content) as parts:
            async for part in parts:
                if part.choices and (text := part.choices[0].delta.content):
                    yield text

    async def close(self) -> None:
        """Close the client."""
        await self.client.close()


class Home:
    """Keeps agents open, each in a task of its own, as a call server does."""

    def __init__(self, tasks: TaskGroup) -> None:
        self._tasks = tasks
        self._leave: dict[int, anyio.Event] = {}

    async def open(self, agent: Agent) -> None:
        """Open ``agent`` until the home is left."""
        await self._tasks.start(self._hold, agent)

    async def _hold(self, agent: Agent, *, task_status: TaskStatus[None]) -> None:
        leave = self._leave[id(agent)] = anyio.Event()
        async with agent:
            task_status.started()
            await leave.wait()

    async def close(self, agent: Agent) -> None:
        """Leave one agent's block."""
        self._leave.pop(id(agent)).set()

    @classmethod
    @contextlib.asynccontextmanager
    async def entered(cls) -> AsyncIterator[Home]:
        """A home whose agents are closed at the end of the block."""
        async with anyio.create_task_group() as tasks:
            home = cls(tasks)
            yield home
            for leave in home._leave.values():
                leave.set()


class Ours(Client):
    """One of our agents. It stays open: an agent is a conversation, and this one always begins the same."""

    kinds: ClassVar[dict[str, type[ChatAgent | OpenaiAgent]]] = {"chat": ChatAgent, "responses": OpenaiAgent}

    def __init__(self, url: str, api: str, count: int, *, tools: int = 0) -> None:
        super().__init__(url, api, count)
        self.agents: dict[str, Agent] = {}
        self.said = [Message(each["role"], each["content"]) for each in messages(count)]  # type: ignore[arg-type]
        self.tools = tools
        self.stack = AsyncExitStack()
        self.home: Home | None = None

    def make(self, model: str) -> Agent:
        """An agent that asks for ``model``."""
        return self.kinds[self.api](model=model, api_key="bench", base_url=self.url, system_prompt=self.said[0].content)

    async def prepare(self, model: str) -> None:
        """Open the agent of ``model``."""
        if self.home is None:
            self.home = await self.stack.enter_async_context(Home.entered())
        if model not in self.agents:
            self.agents[model] = self.make(model)
            await self.home.open(self.agents[model])

    async def chunks(self, model: str) -> AsyncGenerator[str, None]:
        """One answer."""
        agent = self.agents[model]
        agent.conversation.replace(self.said[:-1])
        agent.add_user_message(LAST)
        answer = agent.answer()
        try:
            async for chunk in answer:
                yield chunk
        finally:
            answer.cancel()  # a consumer that was cancelled itself leaves nothing behind

    async def close(self) -> None:
        """Close the agents."""
        await self.stack.aclose()


KINDS: dict[str, type[Client]] = {"raw": Raw, "httpx2": Httpx2, "openai": OpenaiSdk, "ours": Ours}


async def clients(url: str, api: str, count: int, *models: str, names: tuple[str, ...]) -> dict[str, Client]:
    """Everybody in ``names``, ready to be asked for ``models``."""
    made = {name: KINDS[name](url, api, count) for name in names}
    for client in made.values():
        for model in models:
            await client.prepare(model)
    return made
