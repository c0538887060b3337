"""A model and speech services that need no key and no network; every answer is known.

Their audio is no sound: each 100 ms frame carries one word as text, so that a program can be the caller
(``client.py``), and a test can tell what was heard.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any, Final

import anyio

from micdrop_agent import Agent, Message, ToolCall, ToolResult, tool

if TYPE_CHECKING:
    from anyio.abc import ObjectReceiveStream

    from micdrop_agent import Turn
    from micdrop_agent.call import Hearing, Voice

FRAME_BYTES: Final = 3200
"""100 ms of PCM16 at 16 kHz."""

WORDS: Final = int(os.environ.get("FLEET_WORDS", "12"))
"""Words of an answer."""

JOURNAL: Final = os.environ.get("FLEET_ORDERS")
"""A file with a line for each order."""


def frame_of(word: str) -> bytes:
    """A word as a frame of audio."""
    text = word.encode()
    return len(text).to_bytes(2, "little") + text.ljust(FRAME_BYTES - 2, b"\0")


def word_of(frame: bytes) -> str:
    """The word of a frame."""
    return frame[2 : 2 + int.from_bytes(frame[:2], "little")].decode()


class Ears:
    """Hears the words of the frames."""

    async def transcribe(self, audio: ObjectReceiveStream[bytes], hearing: Hearing) -> None:
        """A sentence is final when the caller stops."""
        pcm = b"".join([piece async for piece in audio])
        words = [word_of(pcm[at : at + FRAME_BYTES]) for at in range(0, len(pcm), FRAME_BYTES)]
        hearing.final("".join(words).strip())


class Mouth:
    """Says a word each 100 ms, as fast as they are heard."""

    async def synthesize(self, text: ObjectReceiveStream[str], voice: Voice) -> None:
        """One frame for each word, with the space behind it."""
        async for piece in text:
            for word in re.findall(r"\S+\s*", piece):
                await voice.write(frame_of(word), word)
                await anyio.sleep(0.1)


@tool
async def place_order(number: int) -> dict[str, Any]:
    """Place an order; must not happen twice."""
    if JOURNAL:  # what a test reads
        async with await anyio.open_file(JOURNAL, "a", encoding="utf-8") as file:
            await file.write(f"{number} {os.getpid()}\n")
    await anyio.sleep(0.2)
    return {"placed": number}


class Clerk(Agent):
    """Takes "order 17": says that it looks, places the order with a tool, and talks about it for a while."""

    def __init__(self, **options: Any) -> None:
        super().__init__(tools=[place_order], **options)

    async def generate_answer(self, turn: Turn) -> None:
        """What a model would do: look at the end of the conversation, and go on."""
        await anyio.sleep(0.05)
        last = turn.conversation[-1]
        if isinstance(last, Message) and (found := re.search(r"order (\d+)", last.content)):
            await turn.write(f"Let me see about {found[1]}. ")
            await turn.run_tools([ToolCall(f"order-{found[1]}", "place_order", f'{{"number": {found[1]}}}')])
            last = turn.conversation[-1]
        if isinstance(last, ToolResult):
            number = last.tool_call_id.removeprefix("order-")
            placed = "placed" in last.output
            await turn.write(f"Order {number} is {'placed' if placed else 'in doubt, please ask again'}. ")
            for count in range(WORDS):
                await anyio.sleep(0.02)
                await turn.write(f"{number}-{count} ")
        else:
            await turn.write("Tell me the number of your order. ")
