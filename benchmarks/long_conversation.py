"""What a turn costs in a long call: 10, 100 and 1,000 messages, with 0, 10 and 100 tools.

The conversation grows as in a call: each turn adds the caller's words and the answer, so what was there
before is the same. Process CPU time of a whole turn over the wire, in rounds that take every size in
turn. Bare httpx2 encodes everything anew each time and is the floor for the same number of messages.

    python benchmarks/long_conversation.py --api responses

Goals: with 1,000 messages at most twice the CPU of 10, beyond what the bytes themselves cost on the wire
(a raw socket that sends as many); nothing that grows with messages times tools.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from _clients import PATHS, Home, Httpx2, Ours, Raw
from _harness import LAST, SYSTEM, Goals, Provider, Samples, arguments, messages, pin, quiet, run, tell

from micdrop_agent import Tool

if TYPE_CHECKING:
    from _clients import Client

    from micdrop_agent import Agent

MODEL = "burst-3"
COUNTS = (10, 100, 1000)
TOOLS = (0, 10, 100)
PARAMETERS = {
    "type": "object",
    "properties": {
        "day": {"type": "string", "description": "The day of the appointment, as YYYY-MM-DD."},
        "hour": {"type": "integer", "description": "The hour at which it begins."},
    },
    "required": ["day", "hour"],
}


def tools(count: int) -> list[Tool]:
    """Tools as an application has them."""

    def move(when: dict[str, Any]) -> str:
        return f"{when}"

    return [
        Tool.from_schema(f"move_{number}", "Moves the appointment to another time.", PARAMETERS, move)
        for number in range(count)
    ]


class Sent(Raw):
    """A raw socket that sends what somebody else encoded: the cost of the bytes."""

    content = b""

    def request(self, model: str) -> bytes:
        """The bytes of a request."""
        del model
        head = f"POST /v1{PATHS[self.api]} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(self.content)}\r\n\r\n"
        return head.encode() + self.content


async def turn(agent: Agent, said: list[Any]) -> float:
    """CPU microseconds of one turn at the end of the conversation ``said``."""
    if len(agent.conversation) != len(said):
        agent.conversation.replace(said)
    began = time.process_time_ns()
    agent.add_user_message(LAST)
    async for _ in agent.answer():
        pass
    took = (time.process_time_ns() - began) / 1000
    # Back to the same length, with the very same items, as if the call had only just come here.
    agent.conversation.replace(said)
    return took


class Table:
    """Everybody who is measured, for every size."""

    def __init__(self, url: str, api: str) -> None:
        self.url = url
        self.api = api
        self.agents: dict[tuple[int, int], tuple[Agent, list[Any]]] = {}
        self.floors: dict[str, dict[int, Client]] = {
            "httpx2": {count: Httpx2(url, api, count) for count in COUNTS},
            "bytes alone": {},
        }

    async def open(self, home: Home) -> None:
        """Make the agents, and take from them what the raw socket will send."""
        for count in COUNTS:
            for number in TOOLS:
                options: dict[str, Any] = {"system_prompt": SYSTEM, "tools": tools(number)}
                agent = Ours.kinds[self.api](model=MODEL, api_key="bench", base_url=self.url, **options)
                for each in messages(count)[1:-1]:
                    agent.add_message(each["role"], each["content"])  # type: ignore[arg-type]
                await home.open(agent)
                self.agents[count, number] = agent, list(agent.conversation)
            sent = self.floors["bytes alone"][count] = Sent(self.url, self.api, count)
            first = self.agents[count, 0][0]
            first.add_user_message(LAST)
            sent.content = body_of(first)

    async def round(self, samples: Samples) -> None:
        """One turn of everybody; the one before it is for the caches, which the last one's size would rule."""
        for (count, number), (agent, said) in self.agents.items():
            await turn(agent, said)
            samples.add(f"messages_{count}_us", f"ours, {number} tools", await turn(agent, said))
        for name, clients in self.floors.items():
            for count, client in clients.items():
                began = 0
                for _ in range(2):
                    began = time.process_time_ns()
                    async for _ in client.chunks(MODEL):
                        pass
                samples.add(f"messages_{count}_us", name, (time.process_time_ns() - began) / 1000)

    async def close(self) -> None:
        """Close the floors; the agents are at home."""
        for clients in self.floors.values():
            for client in clients.values():
                await client.close()


async def measure(url: str, api: str, rounds: int) -> Samples:
    """Every size in turn, round by round."""
    samples = Samples()
    async with Home.entered() as home:
        table = Table(url, api)
        await table.open(home)
        with quiet():
            for _ in range(5):
                await table.round(Samples())
            for _ in range(rounds):
                await table.round(samples)
        await table.close()
    return samples


def body_of(agent: Any) -> bytes:
    """The body that ``agent`` would send now."""
    from micdrop_agent.model.protocol import Request  # noqa: PLC0415 - not public

    body: bytes = agent._core.provider.builder.build(Request(items=agent.conversation, tools=(), continue_from=None))  # noqa: SLF001
    return body


def main() -> None:
    """Measure, and print one line."""
    parser = arguments(__doc__, rounds=40)
    parser.add_argument("--api", choices=["chat", "responses"], default="chat")
    options = parser.parse_args()
    with Provider(cpu=pin()) as provider:
        samples: Samples = run(options.loop, measure, provider.url, options.api, options.rounds)

    def cost(count: int, number: int) -> float:
        return samples.median(f"messages_{count}_us", f"ours, {number} tools")

    def beyond(count: int) -> float:
        floor = samples.median("messages_10_us", "bytes alone")
        return cost(count, 0) - samples.median(f"messages_{count}_us", "bytes alone") + floor

    goals = Goals()
    goals.at_most("1,000 messages / 10, beyond the bytes", beyond(1000) / beyond(10), 2.0)
    goals.at_most(
        "100 tools in 1,000 messages / sum of both alone", cost(1000, 100) / (cost(1000, 0) + cost(10, 100)), 1.2
    )
    tell("long_conversation", options.loop, samples, goals, api=options.api)


if __name__ == "__main__":
    main()
