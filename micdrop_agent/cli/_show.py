"""``micdrop-agent show``: the calls of a store, for people or as JSON."""

from __future__ import annotations

import difflib
import json
import shlex
import shutil
import sys
import textwrap
from datetime import datetime
from typing import TYPE_CHECKING, Final

from micdrop_agent.cli._screen import Paint, one_line, printable
from micdrop_agent.errors import MicdropError
from micdrop_agent.messages import Message, ToolCall
from micdrop_agent.store import SqliteStore, UnknownCallError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from micdrop_agent.cli._options import ShowArguments
    from micdrop_agent.messages import Item
    from micdrop_agent.store import CallInfo

__all__ = ["show"]

SPEAKERS: Final = {"system": "prompt", "user": "caller", "assistant": "agent"}
NAME_WIDTH: Final = 8
LEAST_WIDTH: Final = 40


async def show(options: ShowArguments) -> int:
    """Print a call, or the list of all; returns the exit code.

    Raises:
        MicdropError: There is no such store or call, or it cannot be read.
    """
    async with SqliteStore(options.store, create=False) as store:
        calls = await store.calls()
        if options.call is None:
            print(_as_json(calls) if options.json else _as_table(calls, options))
            return 0
        try:
            items = await store.load(options.call)
        except UnknownCallError:
            raise MicdropError(_unknown(options, calls)) from None
    if options.as_test is not None:
        _write_test(options.as_test, str(options.call), items)
    elif options.json:
        from micdrop_agent import wire

        print(wire.dumps(items))
    else:
        _print(items, next(call for call in calls if call.call_id == options.call))
    return 0


def _write_test(file: Path, call: str, items: Sequence[Item]) -> None:
    from micdrop_agent.cli._as_test import as_test
    from micdrop_agent.cli._files import write_whole

    if file.exists():
        raise MicdropError(f"{str(file)!r} exists; a test that somebody may have changed is not written over")
    write_whole(as_test(call, items), file, "the test")
    print(f"call {call} is a test now: pytest {shlex.quote(str(file))}")


def _as_json(calls: Sequence[CallInfo]) -> str:
    return json.dumps(
        [
            {"id": call.call_id, "items": call.items, "created": _iso(call.created), "changed": _iso(call.changed)}
            for call in calls
        ],
        ensure_ascii=False,
    )


def _as_table(calls: Sequence[CallInfo], options: ShowArguments) -> str:
    if not calls:
        return f"{options.store} has no calls"
    width = max(len("call"), *(len(call.call_id) for call in calls))
    lines = [f"{'call':<{width}}  items  begun             changed"]
    lines += [
        f"{call.call_id:<{width}}  {call.items:>5}  {_minute(call.created)}  {_minute(call.changed)}" for call in calls
    ]
    return "\n".join(lines)


def _unknown(options: ShowArguments, calls: Sequence[CallInfo]) -> str:
    close = difflib.get_close_matches(str(options.call), [call.call_id for call in calls], n=1)
    file = shlex.quote(str(options.store))
    hint = f"did you mean {close[0]!r}?" if close else f"micdrop-agent show {file} lists those that it has"
    return f"there is no call {options.call!r} in {options.store}; {hint}"


def _print(items: Sequence[Item], call: CallInfo) -> None:
    paint = Paint(sys.stdout)
    count = "1 item" if call.items == 1 else f"{call.items} items"
    print(paint.dim(f"{call.call_id} · {count} · begun {_minute(call.created)} · changed {_minute(call.changed)}"))
    width = max(LEAST_WIDTH, shutil.get_terminal_size().columns) - NAME_WIDTH if sys.stdout.isatty() else 0
    for item in items:
        name, text, marks = _told(item)
        lines = _wrapped(printable(text), width)
        for number, line in enumerate(lines):
            head = f"{name:<{NAME_WIDTH}}" if number == 0 else " " * NAME_WIDTH
            tail = f"  [{', '.join(marks)}]" if marks and number == len(lines) - 1 else ""
            styled = line if name in {"caller", "agent"} else paint.dim(line)
            print(f"{paint.bold(head) if name in {'caller', 'agent'} else paint.dim(head)}{styled}{paint.yellow(tail)}")


def _told(item: Item) -> tuple[str, str, list[str]]:
    """Who, what, and what is special about it."""
    if isinstance(item, Message):
        marks = [
            one_line(f"{key}" if value is True else f"{key}: {value}") for key, value in (item.metadata or {}).items()
        ]
        return SPEAKERS[item.role], item.content, marks
    if isinstance(item, ToolCall):
        return "tool", f"{item.tool_name}({item.parameters})", []
    return "", f"→ {item.output}", []


def _wrapped(text: str, width: int) -> list[str]:
    lines = text.split("\n")
    if width:
        lines = [part for line in lines for part in textwrap.wrap(line, width) or [""]]
    return lines


def _minute(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds).astimezone():%Y-%m-%d %H:%M}"


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds).astimezone().isoformat(timespec="milliseconds")
