"""Two calls share what they learn about their models: the second one does not wait for the one that is down.

call 1 ── first model: silence ──▶ second model        the registry notes it
call 2 ─────────────────────────▶ second model         at once
"""

from __future__ import annotations

import argparse

import anyio

from micdrop_agent import AgentSwitched, FallbackAgent, HealthRegistry
from micdrop_agent.testing import HANG, ScriptedAgent


def make_agent(health: HealthRegistry) -> FallbackAgent:
    """The agent of one call: two models, the first one of which says nothing."""
    return FallbackAgent(
        factories=[
            lambda: ScriptedAgent([HANG], system_prompt="You are the desk."),
            lambda: ScriptedAgent(["We are open until six."], system_prompt="You are the desk."),
        ],
        names=["first model", "second model"],
        first_chunk_timeout=0.3,  # seconds of silence that a caller has to bear
        health=health,
    )


async def call(name: str, health: HealthRegistry) -> None:
    """One call with one question."""
    async with make_agent(health) as agent:
        agent.on(AgentSwitched, lambda event: print(f"{name}: {event.from_} -> {event.to} ({event.reason})"))
        agent.add_user_message("Until when are you open?")
        answer = agent.answer()
        async for chunk in answer:
            print(f"{name}: {chunk}")
        waited = answer.result.time_to_first_chunk
        assert waited is not None
        print(f"{name}: {'waited for the first model' if waited >= 0.3 else 'answered at once'}")  # noqa: PLR2004


async def main() -> None:
    """Two calls, one after the other, and what the registry knows then."""
    health = HealthRegistry(failures=1)  # one silence is enough to leave a model out for a while
    health.on_change(lambda change: print(f"health: {change.key} is {change.state}"))
    await call("call 1", health)
    await call("call 2", health)
    for name, known in health.snapshot().items():
        print(f"health: {name}: {known.state}, {known.failures} failures in a row")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", choices=("asyncio", "trio"), default="asyncio")
    anyio.run(main, backend=parser.parse_args().backend)
