"""Finds the code blocks of the documentation and runs them, most of them in virtual time.

    <!-- run: MARK -->     how the next block runs (nothing: as it stands)
    ```python … ```
    <!-- prints -->        what it prints, exactly
    ```text … ```

Marks: ``continues`` (after the blocks before it on its page), ``inside agent`` (in the open block of an agent,
as ``agent``), ``server`` (model agents reach a scripted server in memory), ``sdk`` (a real one on loopback, for
clients of an SDK), ``real time`` (with the clock of the machine), ``folder`` (in an empty folder), ``starlette`` (its
``app`` is called then, over a WebSocket), ``no key`` (whatever the environment has), ``raises NAME`` (it ends with that error, whose text is printed).
A block with ``def test_`` in it is run by pytest.
"""

from __future__ import annotations

import contextlib
import functools
import io
import logging
import re
import sys
import tempfile
import textwrap
import types
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import anyio
import attrs

from micdrop_agent.providers import http_agent
from micdrop_agent.testing import ReceivedRequest, Reply, ScriptedProvider, call_tool, run_virtual, say
from micdrop_agent.transport import choose

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator

    from micdrop_agent.testing import Backend

DOCS = Path(__file__).parents[1] / "docs"
_BLOCK = re.compile(
    r"(?:^<!-- run: (?P<mark>[^\n]*?) -->\n+)?"
    r"^```python\n(?P<code>.*?)^```\n"
    r"(?:\n*<!-- prints -->\n+```text\n(?P<prints>.*?)^```$)?",
    re.MULTILINE | re.DOTALL,
)
_INSIDE = """
import anyio
from micdrop_agent import *
from micdrop_agent.testing import ScriptedAgent


async def main() -> None:
    async with ScriptedAgent(["We open ", "at nine."]) as agent:
        agent.add_user_message("When do you open?")
{code}

anyio.run(main)
"""


@attrs.frozen
class Block:
    """A code block of a page, with all that has to run before it."""

    page: str
    line: int
    code: str
    marks: frozenset[str]
    raises: str | None
    prints: str | None

    @property
    def is_test(self) -> bool:
        """Whether pytest has to run it."""
        return re.search(r"^(async )?def test_", self.code, re.MULTILINE) is not None

    @property
    def on_both(self) -> bool:
        """Whether it leaves the choice of the event loop to ``anyio.run``."""
        return ("anyio.run(" in self.code or "starlette" in self.marks) and not self.is_test


def blocks_of(path: Path, root: Path = DOCS) -> list[Block]:
    """Every Python block of a page, in order."""
    text = path.read_text(encoding="utf-8")
    found: list[Block] = []
    before = ""
    for match in _BLOCK.finditer(text):
        mark, code = match["mark"] or "", match["code"]
        raised = re.search(r"raises (\w+)", mark)
        marks = frozenset(
            part.strip() for part in mark.split(",") if part.strip() and not part.strip().startswith("raises")
        )
        if "continues" in marks:
            code = before + code
        if "inside agent" in marks:
            code = _INSIDE.format(code=textwrap.indent(code, " " * 8))
        before = match["code"] if "continues" not in marks else code
        line = text.count("\n", 0, match.start("code")) + 1
        name = str(path.relative_to(root))
        found.append(Block(name, line, code, marks, raised[1] if raised else None, match["prints"]))
    return found


def script(request: ReceivedRequest) -> Reply:
    """What the scripted server says: it calls a tool that it is offered, once, and speaks then."""
    body = request.body or {}
    items = body.get("messages") or body.get("input") or []
    asked = [item for item in items if item.get("role") == "tool" or item.get("type") == "function_call_output"]
    tools = [tool.get("function", tool) for tool in body.get("tools", [])]
    plain = [tool for tool in tools if tool["name"] not in {"end_call", "semantic_turn", "ignore_user_noise"}]
    if plain and not asked:
        properties: dict[str, Any] = plain[0]["parameters"].get("properties", {})
        return call_tool(plain[0]["name"], {name: _example(schema) for name, schema in properties.items()})
    return say("We open ", "at nine.")


def _example(schema: dict[str, Any]) -> Any:
    if "enum" in schema:
        return schema["enum"][0]
    return {"integer": 2, "number": 2, "boolean": True, "array": [], "object": {}}.get(schema.get("type", ""), "Monday")


def run_block(block: Block, backend: Backend) -> str:
    """Run a block; returns what it printed."""
    printed = io.StringIO()
    module = types.ModuleType("a_block_of_the_docs")
    with contextlib.ExitStack() as stack:
        # Not mock.patch.dict: it would also forget what the block is the first to import.
        sys.modules[module.__name__] = module
        stack.callback(sys.modules.pop, module.__name__)
        stack.enter_context(contextlib.redirect_stdout(printed))
        stack.enter_context(mock.patch("anyio.run", _runner(block, backend)))
        stack.callback(logging.getLogger("micdrop_agent").setLevel, logging.NOTSET)
        for mark in block.marks & set(_SURROUNDINGS):
            stack.enter_context(_SURROUNDINGS[mark]())
        # The newline pads keep the line numbers of a traceback those of the page.
        code = compile("\n" * (block.line - 1) + block.code, block.page, "exec")
        try:
            exec(code, module.__dict__)
        except Exception as error:
            if type(error).__name__ != block.raises:
                raise
            print(error, file=printed)
        else:
            assert block.raises is None, f"{block.page}:{block.line} did not raise {block.raises}"
        if "starlette" in block.marks:
            anyio.run(_call_over_websocket, module.__dict__["app"])
    return printed.getvalue()


def _runner(block: Block, backend: Backend) -> Callable[..., Any]:
    if block.marks & {"real time", "sdk"}:
        return functools.partial(anyio.run, backend=backend)

    real = anyio.run

    def run(main: Callable[..., Awaitable[Any]], *args: Any, **options: Any) -> Any:
        chosen = options.get("backend", backend)
        with mock.patch("anyio.run", real):  # virtual time is made with it
            if "server" in block.marks:
                return run_virtual(chosen, _with_server, main, *args)
            return run_virtual(chosen, main, *args)

    return run


async def _with_server(main: Callable[..., Awaitable[Any]], *args: Any) -> Any:
    real: Callable[..., Any] = choose.open_transport
    async with ScriptedProvider(script) as provider:

        def open_transport(base_url: str, **options: Any) -> Any:
            del base_url
            return real("http://provider.test/v1", **{**options, "connect": provider.connect})

        with mock.patch.object(http_agent, "open_transport", open_transport):
            return await main(*args)


async def _call_over_websocket(app: Callable[..., Coroutine[Any, Any, None]]) -> None:
    """Says something to the page's application; it has to answer until the caller hangs up."""
    told, said = anyio.create_memory_object_stream[dict[str, Any]](8)
    answered, answers = anyio.create_memory_object_stream[dict[str, Any]](8)
    scope = {"type": "websocket", "path": "/call", "headers": [], "query_string": b"", "subprotocols": []}
    with told, said, answered, answers:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(app, scope, said.receive, answered.send)
            told.send_nowait({"type": "websocket.connect"})
            assert (await answers.receive())["type"] == "websocket.accept"
            for text in ("Hello!", "Are you there?"):
                told.send_nowait({"type": "websocket.receive", "text": text})
                assert (await answers.receive())["text"] == f'You said: "{text}"'
            told.send_nowait({"type": "websocket.disconnect", "code": 1000})


@contextlib.contextmanager
def _loopback() -> Generator[None]:
    """A scripted server on a loopback port, in a thread of its own, to which the SDK's default URL points."""

    @contextlib.asynccontextmanager
    async def serve() -> AsyncGenerator[str]:
        async with ScriptedProvider(script) as provider, provider.listening() as url:
            yield url

    with (
        anyio.from_thread.start_blocking_portal() as portal,
        portal.wrap_async_context_manager(serve()) as url,
        mock.patch.dict("os.environ", {"OPENAI_BASE_URL": url, "OPENAI_API_KEY": "sk-test"}),
    ):
        yield


def _keys(**keys: str) -> contextlib.AbstractContextManager[Any]:
    return mock.patch.dict("os.environ", keys)


@contextlib.contextmanager
def _empty_folder() -> Generator[None]:
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        yield


_SURROUNDINGS: dict[str, Callable[[], contextlib.AbstractContextManager[Any]]] = {
    "no key": lambda: _keys(OPENAI_API_KEY="", MISTRAL_API_KEY=""),
    "server": lambda: _keys(
        **{f"{name}_API_KEY": "sk-test" for name in ("OPENAI", "MISTRAL", "GROQ", "ANTHROPIC", "GEMINI")}
    ),
    "sdk": _loopback,
    "folder": _empty_folder,
}
"""What a mark puts around a block."""
