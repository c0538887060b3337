from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio

from micdrop_agent import SqliteStore, ToolCall, ToolResult, wire
from micdrop_agent.store import repaired

if TYPE_CHECKING:
    from collections.abc import Iterator

    from micdrop_agent import Item

VICTIM = Path(__file__).with_name("store_crash.py")
KILLS = 50


class Replay:
    """The conversation that must be stored, from what the victim said that it wrote."""

    def __init__(self) -> None:
        self.states: dict[int, list[Any]] = {0: []}
        self.written = 0

    def take(self, told: dict[str, Any]) -> None:
        if "will" in told:
            items = list(self.states[told["will"] - 1])
            items[told["index"] : told["index"] + told["gone"]] = told["come"]
            self.states[told["will"]] = items
        elif "wrote" in told:
            self.written = told["wrote"]


def a_life(victim: subprocess.Popen[bytes], after: int) -> Iterator[dict[str, Any]]:
    """Let the victim live for ``after`` lines, kill it, and give all that it told until its death."""
    assert victim.stdin is not None
    assert victim.stdout is not None
    victim.stdin.write(b"live\n")
    victim.stdin.flush()
    pid: int | None = None
    lines = 0
    while True:
        line = json.loads(victim.stdout.readline())
        if "dead" in line:
            assert line["dead"] == -signal.SIGKILL
            return
        if "pid" in line:
            pid = line["pid"]
        else:
            lines += 1
            yield line
        if lines >= after and pid is not None:
            os.kill(pid, signal.SIGKILL)
            after = sys.maxsize


async def stored(path: Path) -> tuple[int, list[Item]]:
    async with SqliteStore(path) as store:
        log = await store.open_call("call")  # the dead writer locks nobody out
        await log.aclose()
        assert await store.load("call") == log.items
        return log.number, list(log.items)


def test_a_call_survives_being_killed_at_any_moment(tmp_path: Path) -> None:
    chance = random.Random(7)
    path = tmp_path / "calls.db"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONWARNINGS": "ignore"}
    replay, dangling, number = Replay(), 0, 0
    with subprocess.Popen(
        [sys.executable, str(VICTIM), str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
    ) as victim:
        for _ in range(KILLS):
            for told in a_life(victim, chance.randrange(2, 60)):
                replay.take(told)
            number, items = anyio.run(stored, path)
            # All that was acknowledged is there, and at most the one transaction that was under way.
            assert replay.written <= number <= replay.written + 1
            assert wire.dump(items) == replay.states[number]
            replay.states = {number: replay.states[number]}
            replay.written = number
            valid = repaired(items)
            dangling += valid != items
            for index, item in enumerate(valid):
                if isinstance(item, ToolCall):
                    result = valid[index + 1]
                    assert isinstance(result, ToolResult)
                    assert result.tool_call_id == item.tool_call_id
        assert victim.stdin is not None
        victim.stdin.close()
    assert dangling > 3  # some were killed while a tool ran
    assert number > KILLS * 5
