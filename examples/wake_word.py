"""An assistant in a room full of talk: it answers only when it is called by its name.

``on_before_answer`` looks at the conversation before the model is asked. It says what is to happen:
``None`` or ``False``: go on and ask the model; ``True``: say nothing; a text: say that instead.
"""

from __future__ import annotations

import argparse
import re
from typing import TYPE_CHECKING

import anyio

from micdrop_agent import EchoAgent, Message

if TYPE_CHECKING:
    from micdrop_agent import Agent, Turn

HEARD = [
    "Did you see the game yesterday?",
    "Robin, what is the time?",
    "Robin?",
    "I think he means the other one.",
]
NAME = re.compile(r"\brobin\b[\s,.!?]*", re.IGNORECASE)


def only_when_called(agent: Agent, turn: Turn) -> bool | str | None:
    """Skip what does not hold the name; answer the bare name without a model."""
    del agent  # also at hand: to add a message, to look at its tools, …
    last = turn.conversation[-1]
    if not isinstance(last, Message) or NAME.search(last.content) is None:
        return True
    if not NAME.sub("", last.content).strip():
        return "Yes?"
    return None


async def main() -> None:
    """Let it hear a few sentences."""
    async with EchoAgent(system_prompt="You are Robin.", delay=0.05, on_before_answer=only_when_called) as agent:
        for text in HEARD:
            print(f"heard:  {text}")
            agent.add_user_message(text)
            answer = agent.answer()
            async for chunk in answer:
                print(f"Robin:  {chunk}")
            print(f"        ({answer.status})")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", choices=("asyncio", "trio"), default="asyncio")
    anyio.run(main, backend=parser.parse_args().backend)
