"""The kinds of agents: what the package, the command line, the doctor, telemetry and the docs say of each.

    KINDS ──▶ micdrop_agent.__getattr__ · cli (syntax, keys, doctor) · tracing (names) · docs/guides/providers.md

A kind is one row. The class of an agent reads its own row, so that a key variable or a URL is written once.
Nothing is imported here: ``import micdrop_agent`` reads this table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["KINDS", "ProviderKind"]


@attrs.frozen(kw_only=True)
class ProviderKind:
    """One kind of agent.

    Args:
        name: Its name on the command line, in errors and in logs.
        agent: Name of the class.
        module: Where the class is.
        about: What it is, for the help of the command line.
        key_variable: Environment variable of its API key; ``None`` if it needs none.
        base_url: The provider's own server; ``None`` if there is none, or the user has to name it.
        model: The model if none is named.
        path: Where requests go, below the base URL.
        telemetry: Its name in the GenAI conventions of OpenTelemetry.
        takes_model: Whether a model can be named.
        takes_server: Whether a server and a key can be named.
        needs_server: Whether a server and a model have to be named.
    """

    name: str
    agent: str
    module: str
    about: str
    key_variable: str | None = None
    base_url: str | None = None
    model: str = ""
    path: str = ""
    telemetry: str = attrs.field(default=attrs.Factory(lambda self: self.name, takes_self=True))
    takes_model: bool = True
    takes_server: bool = True
    needs_server: bool = False

    @property
    def syntax(self) -> str:
        """How the command line writes it."""
        if self.needs_server:
            return f"{self.name}:MODEL@URL"
        if not self.takes_model:
            return self.name
        return f"{self.name}[:MODEL]" if self.takes_server else f"{self.name}[:FILE.gguf]"


KINDS: Final[Mapping[str, ProviderKind]] = {
    kind.name: kind
    for kind in (
        ProviderKind(
            name="local",
            agent="LocalAgent",
            module="micdrop_agent.providers.local",
            about="a model inside this process; no key, no network",
            path="/chat/completions",
            takes_server=False,
        ),
        ProviderKind(
            name="openai",
            agent="OpenaiAgent",
            module="micdrop_agent.providers.openai",
            about="OpenAI",
            key_variable="OPENAI_API_KEY",
            base_url="https://api.openai.com/v1",
            model="gpt-4o",
            path="/responses",
        ),
        ProviderKind(
            name="anthropic",
            agent="AnthropicAgent",
            module="micdrop_agent.providers.anthropic",
            about="Claude",
            key_variable="ANTHROPIC_API_KEY",
            base_url="https://api.anthropic.com/v1",
            model="claude-haiku-5-5",
            path="/messages",
        ),
        ProviderKind(
            name="gemini",
            agent="GeminiAgent",
            module="micdrop_agent.providers.gemini",
            about="Gemini",
            key_variable="GEMINI_API_KEY",
            base_url="https://generativelanguage.googleapis.com/v1beta",
            model="gemini-flash-latest",
            path="/models/{model}:streamGenerateContent?alt=sse",
            telemetry="gcp.gemini",
        ),
        ProviderKind(
            name="mistral",
            agent="MistralAgent",
            module="micdrop_agent.providers.mistral",
            about="Mistral",
            key_variable="MISTRAL_API_KEY",
            base_url="https://api.mistral.ai/v1",
            model="mistral-large-latest",
            path="/chat/completions",
            telemetry="mistral_ai",
        ),
        ProviderKind(
            name="chat",
            agent="ChatAgent",
            module="micdrop_agent.providers.chat",
            about="any server with Chat Completions: Ollama, vLLM, llama.cpp, Groq, OpenRouter, …",
            model="gpt-4o",
            path="/chat/completions",
            needs_server=True,
        ),
        ProviderKind(
            name="echo",
            agent="EchoAgent",
            module="micdrop_agent.providers.echo",
            about="says what you said",
            takes_model=False,
            takes_server=False,
        ),
    )
}
