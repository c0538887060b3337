"""A value at the end of an answer, which is taken out before it is spoken.

The model is asked to end each answer with a rating; the caller hears the text, the application gets the value.
"""

from __future__ import annotations

import argparse

import anyio

from micdrop_agent import ExtractJson, ExtractTag, Message
from micdrop_agent.testing import ScriptedAgent

JSON_PROMPT = 'End each answer with a JSON object: {"mood": "calm" or "upset", "done": true or false}'
TAG_PROMPT = "End each answer with the language of the caller, as <lang>en</lang>."


async def with_json() -> None:
    """The value is a JSON object; how the model cuts its text makes no difference."""
    agent = ScriptedAgent(
        ["I am sorry to ", "hear that. {", '"mood": "up', 'set", "done": false}'],
        system_prompt=JSON_PROMPT,
        extract=ExtractJson(callback=lambda value: print(f"[callback: {value}]"), save_in_metadata=True),
    )
    async with agent:
        agent.add_user_message("My parcel is broken.")
        async for chunk in agent.answer():
            print(f"spoken: {chunk!r}")
        last = agent.conversation[-1]
        assert isinstance(last, Message)
        print(f"stored: {last.content!r}, metadata {last.metadata}")


async def with_tags() -> None:
    """The value stands between two tags."""
    agent = ScriptedAgent(
        ["Guten Tag. Wie kann ich helfen?<la", "ng>de</lang>"],
        system_prompt=TAG_PROMPT,
        extract=ExtractTag(start_tag="<lang>", end_tag="</lang>"),
    )
    async with agent:
        agent.add_user_message("Guten Tag!")
        answer = agent.answer()
        async for chunk in answer:
            print(f"spoken: {chunk!r}")
        print(f"language: {answer.result.extracted}")


async def main() -> None:
    """Show both forms."""
    await with_json()
    await with_tags()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", choices=("asyncio", "trio"), default="asyncio")
    anyio.run(main, backend=parser.parse_args().backend)
