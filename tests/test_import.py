"""What importing the library loads: a server that restarts has callers waiting."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = {"httpx2", "httpx", "openai", "trio", "pydantic", "cattrs", "xllamacpp", "opentelemetry", "ssl", "sqlite3"}
RARE = {"hmac", "secrets", "email", "datetime", "asyncio", "concurrent.futures", "micdrop_agent.testing"}


@pytest.mark.parametrize(
    ("statement", "unwanted"),
    [
        ("import micdrop_agent", HEAVY | RARE | {"httptools"}),
        ("from micdrop_agent import ChatAgent, FallbackAgent, tool", HEAVY | RARE),
        ("from micdrop_agent import OpenaiAgent", HEAVY | RARE),
    ],
)
def test_what_is_heavy_or_rare_is_loaded_when_it_is_used(statement: str, unwanted: set[str]) -> None:
    code = f"import sys; sys.path[:0] = {sys.path!r}; {statement}; print(*sorted({unwanted!r} & sys.modules.keys()))"

    done = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout.split()) == (0, []), done.stderr


FIRST_ANSWER = """
import sys
import anyio
from anyio.abc import SocketAttribute
from micdrop_agent import {name}

async def serve(stream):
    async with stream:
        await stream.receive()
        head = "HTTP/1.1 {status}\\r\\ncontent-type: text/event-stream\\r\\ncontent-length: %d\\r\\n\\r\\n"
        await stream.send((head % len({body!r}) + {body!r}).encode())

async def main():
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, serve)
        url = "http://127.0.0.1:%d" % listener.extra(SocketAttribute.local_port)
        agent = {name}(model="m", api_key="k", base_url=url)
        async with agent:
            agent.add_user_message("Hi")
            before = set(sys.modules)
            result = await agent.answer().wait()
            assert result.text or result.error.status == 401, result
            print(*sorted(each for each in set(sys.modules) - before if each.startswith("micdrop_agent")))
        tasks.cancel_scope.cancel()

anyio.run(main)
"""


WORDS = 'data: {"choices":[{"index":0,"delta":{"content":"Hello."},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'


@pytest.mark.parametrize(
    ("name", "status", "body"),
    [
        ("ChatAgent", 200, WORDS),
        ("MistralAgent", 200, WORDS),
        ("OpenaiAgent", 401, "{}"),
        ("AnthropicAgent", 401, "{}"),
        ("GeminiAgent", 401, "{}"),
    ],
)
def test_no_caller_waits_for_a_module_of_the_first_answer(name: str, status: int, body: str) -> None:
    code = f"import sys; sys.path[:0] = {sys.path!r}\n" + FIRST_ANSWER.format(name=name, status=status, body=body)

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout.split()) == (0, []), done.stderr
