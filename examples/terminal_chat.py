"""A chat in the terminal: each line you type is your turn, and typing while it answers interrupts it.

python examples/terminal_chat.py                  an agent that repeats you, word by word
python examples/terminal_chat.py --agent local    a small model in this process (pip install ".[local]", see README)
python examples/terminal_chat.py --agent openai   a hosted model; the key comes from OPENAI_API_KEY
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread

from micdrop_agent import Agent, LocalAgent, Message, OpenaiAgent

if TYPE_CHECKING:
    from micdrop_agent import Answer, Turn

PROMPT = "You are a voice assistant. Answer in one or two short sentences."


class SlowEcho(Agent):
    """Repeats the caller slowly, so that there is time to interrupt it."""

    async def generate_answer(self, turn: Turn) -> None:
        """Say the last message again, one word every 0.1 s."""
        heard = next(item.content for item in reversed(turn.conversation) if isinstance(item, Message))
        for word in f"You said: {heard}".split():
            await turn.write(f"{word} ")
            await anyio.sleep(0.1)


AGENTS = {"echo": SlowEcho, "local": LocalAgent, "openai": OpenaiAgent}


async def speak(answer: Answer) -> None:
    """Print an answer as it comes."""
    try:
        async for chunk in answer:
            print(chunk, end="", flush=True)
    except Exception as error:  # noqa: BLE001 - whatever failed, the chat goes on
        print(f"[{error}]", end="")
    print(" [interrupted]" if answer.status == "cancelled" else "", flush=True)


async def main(name: str) -> None:
    """Read lines until the end of the input; each one is a turn."""
    async with AGENTS[name](system_prompt=PROMPT) as agent, anyio.create_task_group() as tasks:
        print("Type something. A line typed while it answers interrupts it; Ctrl-D leaves.", flush=True)
        while line := await anyio.to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True):
            agent.cancel()  # nothing happens when it is silent
            if line.strip():
                agent.add_user_message(line.strip())
                tasks.start_soon(speak, agent.answer())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agent", choices=AGENTS, default="echo")
    parser.add_argument("--backend", choices=("asyncio", "trio"), default="asyncio")
    options = parser.parse_args()
    anyio.run(main, options.agent, backend=options.backend)
