"""One tiny request to an agent: whether it answers, how soon, and what to do if it does not."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Final

import anyio

from micdrop_agent.cli._agents import make_agent
from micdrop_agent.cli._findings import Finding
from micdrop_agent.cli._screen import duration
from micdrop_agent.cli._spec import KEYS
from micdrop_agent.errors import MicdropError, ProviderError
from micdrop_agent.options import Retry, Timeouts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from micdrop_agent.cli._spec import AgentSpec

__all__ = ["probe"]

PROMPT: Final = "Answer with one word."
QUESTION: Final = "Say: ready"

_ADVICE: Final[Mapping[str, str]] = {
    "quota": "the account has no credit left: see the provider's billing page",
    "not_found": "look at the name of the model, and at the URL",
    "connection": "is the server up, and the URL right?",
    "timeout": "it is slow, or still loads the model: try again, or with --timeout 60",
    "rate_limit": "too many requests: try again in a moment",
}
_ABOUT_THE_SERVER: Final = frozenset({"not_found", "connection"})


async def probe(spec: AgentSpec, timeout: float) -> Finding:  # noqa: ASYNC109 - handed on to the agent's own clocks
    """Ask ``spec`` for a word and leave at its first chunk.

    Args:
        spec: Whom.
        timeout: Seconds to the first chunk, the connection included.

    Raises:
        UsageError: The agent refuses what was given for it.
    """
    clocks = Timeouts(connect=timeout, first_chunk=timeout, total=None)
    try:
        seconds = await _first_chunk(spec, clocks)
    except MicdropError as error:
        return Finding("failed", f"{spec.label}: {error}", _mend(spec, error))
    return Finding("ok", f"{spec.label}: first chunk after {duration(seconds)}")


async def _first_chunk(spec: AgentSpec, clocks: Timeouts) -> float:
    async with make_agent(spec, prompt=PROMPT, retry=Retry(max_retries=0), timeouts=clocks) as agent:
        agent.add_user_message(QUESTION)
        began = anyio.current_time()
        async with agent.answer() as answer:  # leaving it stops the rest
            async for _ in answer:
                return anyio.current_time() - began
    raise MicdropError("it ended without a word")


def _mend(spec: AgentSpec, error: MicdropError) -> tuple[str, ...]:
    """How to mend ``error``; the message itself has the command where something is not installed."""
    if not isinstance(error, ProviderError):
        return ()
    if error.kind == "auth":
        return (_mend_key(spec, error),)
    words = _ADVICE.get(error.kind)
    return () if words is None else (words + (_models(spec) if error.kind in _ABOUT_THE_SERVER else ""),)


def _mend_key(spec: AgentSpec, error: ProviderError) -> str:
    variable = spec.key_variable or KEYS.get(spec.kind)
    if variable is None:
        return f"it wants a key: micdrop-agent doctor {shlex.quote(f'{spec},key=VARIABLE')}"
    if error.status is None:
        return f"export {variable}=…"
    return f"the server refuses the key in {variable}; make a new one, then: export {variable}=…"


def _models(spec: AgentSpec) -> str:
    """The command that shows which models a server has."""
    if spec.base_url is None or "@" in spec.base_url:
        return ""
    return f"   curl {shlex.quote(spec.base_url.rstrip('/') + '/models')}"
