"""Tools of a Model Context Protocol server, over a session of the official client that the user opened.

    async with stdio_client(…) as (read, write), ClientSession(read, write) as session:
        await session.initialize()
        agent = OpenaiAgent(tools=await tools_from_mcp(session))

The session stays the user's: it is neither opened nor closed here. A call that a barge-in cancels is cancelled
on the server too, which the client sees to when the task that waits for it is cancelled.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from micdrop_agent.errors import ToolError
from micdrop_agent.tools._tool import Tool

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from typing_extensions import Unpack

    from micdrop_agent.tools._tool import ToolOptions

__all__ = ["tools_from_mcp"]

_MOST_PAGES: Final = 100
"""Pages of a list of tools that are read: a server that never ends its list must not hang the start of a call."""


async def tools_from_mcp(
    session: Any,
    *,
    names: Sequence[str] | None = None,
    prefix: str = "",
    say_progress: bool = False,
    **options: Unpack[ToolOptions],
) -> list[Tool]:
    """The tools that the server of ``session`` offers, as tools of an agent.

    Args:
        session: An open and initialized ``mcp.ClientSession`` of yours.
        names: Which of them; all when left out.
        prefix: Put before each name, for servers whose tools have the same names.
        say_progress: Say the messages of a tool's progress to the caller.
        options: As for ``Tool``: ``timeout``, ``filler``, ``on_cancel`` and the others.

    Raises:
        ImportError: The extra ``mcp`` is not installed.
        TypeError: ``session`` is not a session of that client.
        ValueError: A tool has a name or a schema that no provider takes, or ``names`` has one that is not offered.
    """
    try:
        import mcp
    except ImportError as error:
        raise ImportError("tools of MCP servers need the client: pip install 'micdrop-agent[mcp]'") from error
    if not isinstance(session, mcp.ClientSession):
        raise TypeError(f"session must be an mcp.ClientSession, not {session!r}")
    offered = {each.name: each for each in await _listed(session)}
    unknown = sorted(set(names or ()) - set(offered))
    if unknown:
        raise ValueError(f"the server offers no tool {unknown[0]!r}; it offers: {', '.join(offered) or 'none'}")
    wanted = list(offered) if names is None else names
    return [_tool(session, offered[name], prefix, say_progress, options) for name in wanted]


async def _listed(session: Any) -> list[Any]:
    from mcp import types

    found: list[Any] = []
    cursor: str | None = None
    for _ in range(_MOST_PAGES):
        page = await session.list_tools(params=types.PaginatedRequestParams(cursor=cursor))
        found += page.tools
        cursor = getattr(page, "next_cursor", None) or getattr(page, "nextCursor", None)
        if not cursor:
            break
    return found


def _tool(session: Any, offered: Any, prefix: str, say_progress: bool, options: ToolOptions) -> Tool:
    schema: dict[str, Any] = getattr(offered, "input_schema", None) or getattr(offered, "inputSchema", None) or {}
    execute = _caller(session, offered.name, say_progress)
    return Tool.from_schema(
        prefix + offered.name,
        offered.description or offered.title or "",
        {"type": "object", "properties": {}, **schema},
        execute,
        **options,
    )


def _caller(session: Any, name: str, say_progress: bool) -> Callable[[dict[str, Any], Any], Awaitable[Any]]:
    async def call(arguments: dict[str, Any], turn: Any) -> Any:
        async def progress(_progress: float, _total: float | None, message: str | None) -> None:
            if message:
                turn.say(f"{message} ")

        from mcp import MCPError

        try:
            result = await session.call_tool(name, arguments, progress_callback=progress if say_progress else None)
        except MCPError as error:
            # The server's own words about the call are for the model, as those of a tool's error are.
            raise ToolError(f"the tool could not be called: {error}") from error
        return _output(result)

    # Resolved by name: the class of a turn stands above this room.
    call.__annotations__ = {"arguments": dict[str, Any], "turn": "Turn"}
    return call


def _output(result: Any) -> Any:
    """What the model reads of a result.

    Raises:
        ToolError: The server says that the tool failed.
    """
    content = list(getattr(result, "content", None) or ())
    shown = [_shown(block) for block in content]
    if getattr(result, "is_error", None) or getattr(result, "isError", False):
        raise ToolError("\n".join(str(part) for part in shown) or "the tool failed")
    structured = getattr(result, "structured_content", None) or getattr(result, "structuredContent", None)
    if structured is not None:
        return structured
    if len(shown) == 1:
        return _decoded(shown[0])
    return shown


def _shown(block: Any) -> str:
    text = getattr(block, "text", None)
    if isinstance(text, str):
        return text
    inner = getattr(getattr(block, "resource", None), "text", None)
    if isinstance(inner, str):
        return inner
    uri = getattr(block, "uri", None)
    return str(uri) if uri is not None else f"({getattr(block, 'type', type(block).__name__)}, not shown)"


def _decoded(text: str) -> Any:
    """``text``, or the value that it is the JSON of: else it would reach the model encoded twice."""
    if text[:1] not in "{[":
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text
