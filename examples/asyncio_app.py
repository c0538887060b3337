"""Several calls in one asyncio application, each with an agent of its own, and a time limit for each answer.

asyncio.TaskGroup
  ├── call 1: async with agent ── queue of what the caller said
  └── call 2: …
"""

from __future__ import annotations

import asyncio

from micdrop_agent import AnswerFinished, EchoAgent

SAID = {
    "call 1": ["Hello!", "Can you hear me?"],
    "call 2": ["Good morning.", "I would like a table for two."],
}
LONGEST_ANSWER = 10.0
"""Seconds after which an answer is stopped."""


async def call(name: str, heard: asyncio.Queue[str | None]) -> None:
    """Serve one call until ``None`` comes: the caller hung up."""
    async with EchoAgent(system_prompt="Be brief.", delay=0.05) as agent:
        agent.on(AnswerFinished, lambda event: print(f"{name}: {event.result.status}"))
        while (text := await heard.get()) is not None:
            agent.add_user_message(text)
            try:
                # Any asyncio tool works around it: timeouts, task groups, cancellation of the task.
                async with asyncio.timeout(LONGEST_ANSWER), agent.answer() as answer:
                    async for chunk in answer:
                        print(f"{name}: {chunk}")
            except TimeoutError:
                print(f"{name}: that took too long")


async def caller(heard: asyncio.Queue[str | None], said: list[str]) -> None:
    """Stands for a phone line: puts in what a caller says, then hangs up."""
    for text in said:
        await asyncio.sleep(0.2)
        heard.put_nowait(text)
    heard.put_nowait(None)


async def main() -> None:
    """Run all calls at the same time."""
    async with asyncio.TaskGroup() as tasks:
        for name, said in SAID.items():
            heard: asyncio.Queue[str | None] = asyncio.Queue()
            tasks.create_task(call(name, heard))
            tasks.create_task(caller(heard, said))


if __name__ == "__main__":
    asyncio.run(main())
