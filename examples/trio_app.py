"""A call in a Trio application: a caller, a voice that reports how far it got, and a barge-in.

caller ──text──▶ agent ──chunks──▶ voice
   └── starts to speak ──▶ agent.cancel(heard=characters played)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from micdrop_agent.testing import ScriptedAgent

if TYPE_CHECKING:
    from micdrop_agent import Answer

CALLER = [(0.0, "What are your opening hours?"), (0.35, "Sorry, I meant on Sunday.")]
"""What the caller says, and after how many seconds of the answer before."""

ANSWERS = (
    ["On weekdays we are open ", "from nine in the morning ", "until seven in the evening."],
    ["On Sunday ", "we are closed."],
)
SECONDS_PER_CHARACTER = 0.01


class Voice:
    """Stands for a speech synthesizer: "plays" text at the speed of speech and knows how far it is."""

    def __init__(self) -> None:
        self._scope = trio.CancelScope()
        self._played = 0

    async def say(self, answer: Answer) -> None:
        """Play an answer as it comes, character by character."""
        with trio.CancelScope() as self._scope:
            self._played = 0
            async for chunk in answer:
                for character in chunk:
                    await trio.sleep(SECONDS_PER_CHARACTER)
                    self._played += 1
                    print(character, end="", flush=True)
            print(flush=True)

    def stop(self) -> int:
        """Be silent from now on; returns how many characters were played."""
        self._scope.cancel()
        return self._played


async def main() -> None:
    """One call with two turns, the second one a barge-in."""
    voice = Voice()
    async with ScriptedAgent(*ANSWERS, system_prompt="You answer the phone of a shop.") as agent:
        async with trio.open_nursery() as nursery:
            for pause, text in CALLER:
                await trio.sleep(pause)
                agent.cancel(heard=voice.stop())  # plain and immediate; nothing happens in the first turn
                print(f"\ncaller: {text}")
                agent.add_user_message(text)
                nursery.start_soon(voice.say, agent.answer())
        print("\nThe conversation now:")
        for item in agent.conversation:
            print(" ", item)


if __name__ == "__main__":
    trio.run(main)
