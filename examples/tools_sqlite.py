"""Tools over a real SQLite database: a restaurant that looks up and books tables.

    free_tables   blocks a little: runs in a worker thread
    book_table    changes the database: a barge-in lets it finish, so that nothing is half done

The model is a script here, so no key is needed; put ``OpenaiAgent`` in its place and ask it yourself.
"""

from __future__ import annotations

import argparse
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import anyio

from micdrop_agent import ToolCalled, ToolResult, tool
from micdrop_agent.testing import Call, ScriptedAgent

if TYPE_CHECKING:
    from micdrop_agent import Tool, Turn

Day = Literal["monday", "tuesday", "wednesday", "thursday", "friday", "saturday"]

SCHEMA = """
CREATE TABLE seating (number INTEGER PRIMARY KEY, seats INTEGER NOT NULL);
CREATE TABLE booking (number INTEGER NOT NULL, day TEXT NOT NULL, guest TEXT NOT NULL, UNIQUE (number, day));
INSERT INTO seating VALUES (1, 2), (2, 2), (3, 4), (4, 8);
INSERT INTO booking VALUES (1, 'friday', 'Ada');
"""
FREE = """
SELECT number, seats FROM seating
WHERE seats >= ? AND number NOT IN (SELECT number FROM booking WHERE day = ?) ORDER BY seats
"""


def restaurant_tools(file: Path) -> list[Tool]:
    """The tools of one restaurant, over its database."""

    @tool(thread=True, timeout=2.0)
    def free_tables(day: Day, people: Annotated[int, "how many will sit at it"]) -> list[dict[str, int]]:
        """Tables that are still free on a day and large enough."""
        with closing(sqlite3.connect(file)) as database:
            return [{"table": number, "seats": seats} for number, seats in database.execute(FREE, (people, day))]

    @tool(thread=True, on_cancel="finish", emit_output=True)
    def book_table(table: int, day: Day, guest: str) -> dict[str, str]:
        """Book a table under the guest's name."""
        try:
            with closing(sqlite3.connect(file)) as database, database:  # one transaction
                database.execute("INSERT INTO booking VALUES (?, ?, ?)", (table, day, guest))
        except sqlite3.IntegrityError:
            return {"status": "taken"}  # the model reads this and offers another one
        return {"status": "booked"}

    return [free_tables, book_table]


async def tell(turn: Turn) -> None:
    """Stands for the model: puts the last result into words."""
    result = turn.conversation[-1]
    assert isinstance(result, ToolResult)
    await turn.write(f"{result.tool_name} says {result.output}. ")


async def main(folder: str) -> None:
    """A call in which a table is booked twice, by a model that makes a mistake first."""
    file = Path(folder) / "restaurant.db"
    with closing(sqlite3.connect(file)) as database, database:
        database.executescript(SCHEMA)
    model = ScriptedAgent(
        [Call("free_tables", {"day": "friday", "people": "two"}), tell],  # wrong type: the model is told
        [Call("free_tables", {"day": "friday", "people": 2}), tell],
        [Call("book_table", {"table": 2, "day": "friday", "guest": "Grace"}), tell],
        [Call("book_table", {"table": 2, "day": "friday", "guest": "Alan"}), tell],
        system_prompt="You take bookings for a restaurant.",
        tools=restaurant_tools(file),
    )
    async with model as agent:
        agent.on(ToolCalled, lambda event: print(f"[the host shows it: {event.name} -> {event.output}]"))
        for text in ["A table for two on Friday?", "Two people!", "I take it.", "One more for Alan."]:
            print(f"caller: {text}")
            agent.add_user_message(text)
            async for chunk in agent.answer():
                print(f"agent:  {chunk}")
    with closing(sqlite3.connect(file)) as database, database:
        print("booked:", database.execute("SELECT number, day, guest FROM booking ORDER BY guest").fetchall())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", choices=("asyncio", "trio"), default="asyncio")
    with tempfile.TemporaryDirectory() as folder:
        anyio.run(main, folder, backend=parser.parse_args().backend)
