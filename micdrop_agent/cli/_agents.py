"""The agent that the options ask for."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from micdrop_agent.cli._options import UsageError
from micdrop_agent.errors import MicdropError

if TYPE_CHECKING:
    from micdrop_agent.agent import Agent
    from micdrop_agent.cli._options import ChatOptions

__all__ = ["make_agent"]


def make_agent(options: ChatOptions) -> Agent:
    """Make the agent; only its own module is loaded.

    Raises:
        MicdropError: Something is not installed, a file or a key is missing.
        UsageError: An option has a value that the agent refuses.
    """
    try:
        return _make(options)
    except (TypeError, ValueError) as error:
        if isinstance(error, MicdropError):
            raise
        raise UsageError(str(error)) from error


def _make(options: ChatOptions) -> Agent:
    import micdrop_agent as library

    given: dict[str, Any] = {"system_prompt": options.prompt}
    match options.agent:
        case "echo":
            return library.EchoAgent(**given)
        case "local":
            return library.LocalAgent(model_path=options.model, **given)
        case "chat":
            return library.ChatAgent(**given, **_server(options))
        case "openai":
            return library.OpenaiAgent(**given, **_server(options))
        case "mistral":
            return library.MistralAgent(**given, **_server(options))


def _server(options: ChatOptions) -> dict[str, Any]:
    """What was given about the server; the rest is the agent's own default."""
    found = {"model": options.model, "base_url": options.base_url, "api_key": _api_key(options.api_key_env)}
    return {name: value for name, value in found.items() if value is not None}


def _api_key(variable: str | None) -> str | None:
    if variable is None:
        return None
    key = os.environ.get(variable)
    if not key:
        raise MicdropError(f"the environment variable {variable} (--api-key-env) is not set")
    return key
