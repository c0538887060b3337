"""Two agents of your own: one without a model, and one for a model server that the library does not know.

There is no ``cancel()`` to write and no flag to look at: ``generate_answer`` runs inside a cancel scope, and what
is done through its ``turn`` after a barge-in has no effect. Run it with ``--backend trio`` or ``asyncio``.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

import anyio
import httpx2

from micdrop_agent import Agent, Message, ProviderError
from micdrop_agent.testing import ScriptedProvider

if TYPE_CHECKING:
    from micdrop_agent import Turn
    from micdrop_agent.testing import Exchange


class EchoAgent(Agent):
    """Repeats the last thing that the caller said, as the agent of that name in the library does."""

    async def generate_answer(self, turn: Turn) -> None:
        """Wait a moment, then say it."""
        said = [item for item in turn.conversation if isinstance(item, Message) and item.role == "user"]
        if said:
            await anyio.sleep(0.1)
            await turn.write(f'You said: "{said[-1].content}"')


class CustomAgent(Agent):
    """Asks a server that takes ``{"model", "messages"}`` and streams plain text back.

    Args:
        base_url: The server.
        api_key: Its key.
        model: Name of the model.
        settings: More members of each request.
        options: The options of ``Agent``.
    """

    def __init__(
        self,
        *,
        base_url: str,
        api_key: str,
        model: str = "a-model",
        settings: dict[str, Any] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.model = model
        self._settings = settings or {}
        self._client = httpx2.AsyncClient(base_url=base_url, headers={"authorization": f"Bearer {api_key}"})

    async def generate_answer(self, turn: Turn) -> None:
        """Send the conversation; write what comes back as it comes.

        Raises:
            ProviderError: What a ``FallbackAgent`` around this agent reacts to.
        """
        messages = [
            {"role": item.role, "content": item.content} for item in turn.conversation if isinstance(item, Message)
        ]
        body = {"model": self.model, "messages": messages, **self._settings}
        try:
            async with self._client.stream("POST", "/chat", json=body) as response:
                if not response.is_success:
                    raise ProviderError(
                        f"the server answered {response.status_code}", kind="server", status=response.status_code
                    )
                async for text in response.aiter_text():
                    # No await in this loop but its own: a cancellation then always lands in the read, which
                    # closes the connection cleanly.
                    turn.write_nowait(text)
        except httpx2.TransportError as error:
            raise ProviderError(f"no connection: {error}", kind="connection") from error
        # What was written is stored as the assistant's message when this returns.

    async def aclose(self) -> None:
        """Close what this class opened; called at the end of ``async with`` too."""
        await super().aclose()
        await self._client.aclose()


async def model_server(exchange: Exchange) -> None:
    """Stands for the server: streams a few words about the last message."""
    last = exchange.request.body["messages"][-1]["content"]
    for word in ["You asked: ", last, " Good question."]:
        await exchange.send(word.encode())
        await anyio.sleep(0.05)
    await exchange.end()


async def show(agent: Agent) -> None:
    """Ask one question."""
    async with agent:
        agent.add_user_message("Is there a pool?")
        async for chunk in agent.answer():
            print(chunk, end="", flush=True)
        print()
        print(" ", agent.conversation[-1])


async def main() -> None:
    """Show both."""
    await show(EchoAgent(system_prompt="You repeat what you hear."))
    async with ScriptedProvider([model_server]) as provider, provider.listening() as url:
        await show(CustomAgent(base_url=url, api_key="a-key", system_prompt="You work at the desk of a hotel."))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", choices=("asyncio", "trio"), default="asyncio")
    anyio.run(main, backend=parser.parse_args().backend)
