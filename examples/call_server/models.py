"""Who answers in the call server: hosted models if there are keys, else the embedded model, else two scripted servers."""

from __future__ import annotations

import os
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from micdrop_agent import ChatAgent, LocalAgent, MicdropError, MistralAgent, OpenaiAgent
from micdrop_agent.testing import ScriptedProvider, call_tool, fault, say

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from micdrop_agent import Agent
    from micdrop_agent.testing import ReceivedRequest, Reply

PROMPT = (
    "You answer the phone of a small restaurant. Your answers are read aloud: one to three short sentences, "
    "no lists, no markup. Use the tools for opening hours and bookings."
)
STORY = (
    "Once there was a lighthouse keeper who answered the phone for the whole coast. Sailors called to ask for the "
    "wind, children called to ask for the moon, and one winter night somebody called and said nothing at all. She "
    "listened to the silence for a while, and then she began to tell it about the sea: how it never says the same "
    "thing twice, how it breaks off in the middle of a word, and how it always goes on as if nothing had happened."
)
BROKEN = ("I will break off in the middle of a ", "sentence, and the other model goes on as if nothing had happened.")
HELP = "I can tell a story, book a table, look up the opening hours, break off, or stay silent. What shall it be?"


def real_agents() -> list[Callable[[], Agent]]:
    """A factory for each hosted model whose key is in the environment."""
    known: dict[str, Callable[..., Agent]] = {"OPENAI_API_KEY": OpenaiAgent, "MISTRAL_API_KEY": MistralAgent}
    return [
        partial(agent, system_prompt=PROMPT, auto_end_call=True)
        for variable, agent in known.items()
        if os.environ.get(variable)
    ]


@asynccontextmanager
async def choose_agents() -> AsyncGenerator[tuple[list[Callable[[], Agent]], float]]:
    """The factories, and the seconds until the next one is asked; CALL_MODELS=scripted takes no real model."""
    if os.environ.get("CALL_MODELS") != "scripted":
        if real := real_agents():
            yield real, 1.5
            return
        if embedded():
            # One small model of this machine, which needs its time on a slow one.
            yield [partial(LocalAgent, system_prompt=PROMPT)], 60.0
            return
    async with demo_agents() as scripted:
        yield scripted, 1.5


def embedded() -> bool:
    """Whether llama.cpp and its small model are installed."""
    try:
        LocalAgent()
    except MicdropError:
        return False
    return True


@asynccontextmanager
async def demo_agents() -> AsyncGenerator[list[Callable[[], Agent]]]:
    """Factories for two agents, each with a scripted model server of its own."""
    async with (
        ScriptedProvider(first_model) as first,
        first.listening() as first_url,
        ScriptedProvider(second_model) as second,
        second.listening() as second_url,
    ):
        yield [
            partial(ChatAgent, base_url=url, model=name, system_prompt=PROMPT, auto_end_call=True)
            for name, url in (("first", first_url), ("second", second_url))
        ]


def words(text: str, gap: float = 0.05) -> Reply:
    """An answer that comes word by word."""
    return say(*(f"{word} " for word in text.split(" ")), gap=gap)


def first_model(request: ReceivedRequest) -> Reply:
    """The model that is asked first; it fails on demand."""
    asked = last_words(request)
    if "break" in asked:
        return fault("cut_after_text", text=[f"{word} " for word in BROKEN[0].split()])
    if "silent" in asked:
        return fault("stall_after_headers")
    return second_model(request)


def second_model(request: ReceivedRequest) -> Reply:
    """The model that is asked when the first one fails."""
    asked = last_words(request)
    for word, reply in REPLIES.items():
        if word in asked:
            return reply(request)
    return words(HELP)


def last_words(request: ReceivedRequest) -> str:
    """What the caller said last, in lower case; notes of the library to the model stand in brackets."""
    said = [message["content"] for message in request.body["messages"] if message["role"] == "user"]
    return next((text.lower() for text in reversed(said) if not text.startswith("(")), "")


def with_tool(name: str, arguments: dict[str, Any], after: str) -> Callable[[ReceivedRequest], Reply]:
    """A reply that calls a tool first and speaks of its result then."""

    def reply(request: ReceivedRequest) -> Reply:
        if request.body["messages"][-1]["role"] == "tool":
            return words(after)
        return call_tool(name, arguments, f"call_{request.number}", text="One moment. ")

    return reply


REPLIES: dict[str, Callable[[ReceivedRequest], Reply]] = {
    "story": lambda _: words(STORY),
    "book": with_tool("book_table", {"day": "Friday", "people": 2}, "Done: a table for two on Friday."),
    "open": with_tool("opening_hours", {"day": "Sunday"}, "On Sunday we are closed, I am afraid."),
    "break": lambda _: words(BROKEN[1]),
    "silent": lambda _: words("The first model said nothing for a second and a half, so I answer in its place."),
    "bye": lambda request: call_tool(
        "end_call", {}, f"call_{request.number}", text="Goodbye, and thank you for calling!"
    ),
}
