"""The agents that the options ask for."""

from __future__ import annotations

import functools
import os
from typing import TYPE_CHECKING, Any

from micdrop_agent.cli._options import UsageError
from micdrop_agent.cli._spec import KEYS
from micdrop_agent.errors import MicdropError, ProviderError
from micdrop_agent.providers.kinds import KINDS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from micdrop_agent._core.agent import Agent
    from micdrop_agent.cli._spec import AgentSpec
    from micdrop_agent.providers.kinds import ProviderKind

__all__ = ["make_agent", "make_chain"]


def make_chain(
    specs: Sequence[AgentSpec], *, prompt: str, first_chunk_timeout: float | None, note: Callable[[str], object]
) -> Agent:
    """Make the agent that answers with the first of ``specs`` that can.

    One that cannot even be made (no key, not installed) is left out with a note, if another can.

    Args:
        specs: At least one.
        prompt: The system prompt of all of them.
        first_chunk_timeout: Seconds to the first chunk before the next one is asked; ``None``: the
            agents' own clocks, which give a model on this machine more time than a hosted one.
        note: Tells the user.

    Raises:
        MicdropError: None can be made; the error is the one of the first.
        UsageError: An option has a value that an agent refuses.
    """
    usable: list[AgentSpec] = []
    problems: list[MicdropError] = []
    alone: Agent | None = None
    for spec in specs:
        try:
            alone = make_agent(spec, prompt=prompt)
        except MicdropError as error:
            problems.append(error)
            if len(specs) > 1:
                note(f"{spec.label} is left out: {error}")
        else:
            usable.append(spec)
    if alone is None:
        raise problems[0]
    if len(usable) == 1:
        return make_agent(usable[0], prompt=prompt) if len(specs) > 1 else alone
    from micdrop_agent.fallback.agent import FallbackAgent

    return FallbackAgent(
        factories=[functools.partial(make_agent, spec, prompt=prompt) for spec in usable],
        names=_names(usable),
        first_chunk_timeout=first_chunk_timeout,
        prebuild=True,  # a local model that is loaded only at the switch makes the caller wait for it
    )


def make_agent(spec: AgentSpec, *, prompt: str, **options: Any) -> Agent:
    """Make one agent; only its own module is loaded.

    Args:
        spec: Which.
        prompt: Its system prompt.
        **options: Options of its class; of no use to an echo.

    Raises:
        MicdropError: Something is not installed, a file or a key is missing.
        UsageError: An option has a value that the agent refuses.
    """
    try:
        return _make(spec, prompt, options)
    except ProviderError as error:
        if error.kind != "auth":
            raise
        variable = spec.key_variable or KEYS.get(spec.kind)  # in the words of the command line
        raise ProviderError(
            f"no API key for {spec.label}: set {variable}, or name another variable: --agent {spec.kind},key=VARIABLE",
            kind="auth",
        ) from error
    except (TypeError, ValueError) as error:
        if isinstance(error, MicdropError):
            raise
        raise UsageError(str(error)) from error


def _make(spec: AgentSpec, prompt: str, options: dict[str, Any]) -> Agent:
    import micdrop_agent as library

    kind = KINDS[spec.kind]
    make = getattr(library, kind.agent)
    agent: Agent
    if not kind.takes_model:
        agent = make(system_prompt=prompt)
    elif not kind.takes_server:
        agent = make(system_prompt=prompt, model_path=spec.model, **options)
    else:
        agent = make(system_prompt=prompt, **options, **_server(spec, kind))
    return agent


def _server(spec: AgentSpec, kind: ProviderKind) -> dict[str, Any]:
    """What is said about the server, on the command line or in the table; the rest is the agent's own default."""
    found = {
        "model": spec.model or kind.model,
        "base_url": spec.base_url or kind.base_url,
        "api_key": _api_key(spec.key_variable),
    }
    return {name: value for name, value in found.items() if value}


def _api_key(variable: str | None) -> str | None:
    if variable is None:
        return None
    key = os.environ.get(variable)
    if not key:
        raise MicdropError(f"the environment variable {variable} is not set, and the API key was to come from it")
    return key


def _names(specs: Sequence[AgentSpec]) -> list[str]:
    """A name for each, different ones."""
    names: list[str] = []
    for spec in specs:
        taken = sum(name.split(" #")[0] == spec.label for name in names)
        names.append(f"{spec.label} #{taken + 1}" if taken else spec.label)
    return names
