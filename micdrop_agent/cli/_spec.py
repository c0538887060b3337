"""An agent in one word of the command line: ``KIND[:MODEL][@URL][,key=VARIABLE]``."""

from __future__ import annotations

import re
from pathlib import PurePath
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import attrs

from micdrop_agent.providers.kinds import KINDS

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["AGENTS", "KEYS", "SYNTAX", "AgentSpec"]

AGENTS: Final = tuple(KINDS)
KEYS: Final[Mapping[str, str]] = {name: kind.key_variable for name, kind in KINDS.items() if kind.key_variable}
"""Environment variables of the agents that want a key."""


def _syntax() -> str:
    width = max(len(kind.syntax) for kind in KINDS.values())
    lines = [
        f"  {kind.syntax:{width}}  {kind.about}"
        + (f"; the key comes from {kind.key_variable}" if kind.key_variable else "")
        for kind in KINDS.values()
    ]
    return "\n".join(
        [
            "AGENT is KIND[:MODEL][@URL][,key=VARIABLE]:",
            *lines,
            "URL is the server up to and with its version (http://localhost:11434/v1); VARIABLE is the",
            "environment variable that holds the API key.",
            "",
        ]
    )


SYNTAX: Final = _syntax()

# A model may have ":" and "@" in its name, and a URL a user part: the first "@http" divides them.
_SPEC: Final = re.compile(
    r"(?P<kind>[^:@,]+)(?P<colon>:(?P<model>.*?))?(?:@(?P<url>https?://.*?))?(?:,key=(?P<key>\w+))?", re.DOTALL
)


@attrs.frozen
class AgentSpec:
    """Which agent is to be made.

    Args:
        kind: The kind of agent.
        model: Name of the model, or the path of a GGUF file; ``None``: the agent's own default.
        base_url: The server; ``None``: the agent's own default. May hold a password.
        key_variable: Environment variable of the API key; ``None``: the agent's own default.
    """

    kind: str
    model: str | None = None
    base_url: str | None = attrs.field(default=None, repr=False)
    key_variable: str | None = None

    @classmethod
    def parse(cls, text: str) -> AgentSpec:
        """Read ``text``.

        Raises:
            ValueError: It has another form, or there is no such kind.
        """
        found = _SPEC.fullmatch(text)
        if found is None or found["kind"] not in AGENTS:
            meant = _meant(text)
            near = f"; did you mean {meant} ?" if meant else ""
            raise ValueError(
                f"{text!r} is not an agent{near}; there are {', '.join(AGENTS)}, and for example chat:MODEL@URL"
            )
        if found["colon"] == ":":
            raise ValueError(f"{text!r} names no model after the colon")
        return cls(found["kind"], found["model"], found["url"], found["key"])

    def __str__(self) -> str:
        """As it is written; without the user part of its URL, which may be a password."""
        url = "" if self.base_url is None else "@" + re.sub(r"//[^/]*@", "//…@", self.base_url)
        model = "" if self.model is None else f":{self.model}"
        return f"{self.kind}{model}{url}" + ("" if self.key_variable is None else f",key={self.key_variable}")

    @property
    def label(self) -> str:
        """Its name in notes."""
        if self.model is None:
            return self.kind
        return f"{self.kind}:{PurePath(self.model).stem if self.kind == 'local' else self.model}"

    def problem(self) -> str | None:
        """What is missing or too much, if anything."""
        kind = KINDS[self.kind]
        if kind.needs_server and self.base_url is None:
            return (
                f"the agent {kind.name} needs a server: {kind.name}:MODEL@http://localhost:11434/v1, or --base-url URL"
            )
        if kind.needs_server and self.model is None:
            return f"the agent {kind.name} needs a model, as its server names it: {kind.syntax}, or --model MODEL"
        if not kind.takes_server and (self.base_url is not None or self.key_variable is not None):
            return f"the agent {kind.name} talks to no server and takes no URL and no key"
        if not kind.takes_model and self.model is not None:
            return f"the agent {kind.name} has no model"
        return None


_MAKERS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "openai": ("gpt", "chatgpt", "o1", "o3", "o4"),
        "anthropic": ("claude",),
        "gemini": ("google", "gemini"),
        "mistral": ("mistral", "ministral", "magistral", "codestral"),
    }
)
"""How names of models begin, by who serves them."""

_PORTS: Final[Mapping[str, int]] = MappingProxyType(
    {"ollama": 11434, "lmstudio": 1234, "lm-studio": 1234, "vllm": 8000, "llamacpp": 8080, "llama.cpp": 8080}
)
"""Where servers on this machine listen unless they were told otherwise."""


def _meant(text: str) -> str | None:
    """What somebody may have meant who wrote the name of a model, or of a server, in the place of a kind."""
    from difflib import get_close_matches

    found = _SPEC.fullmatch(text)
    kind, model = (text, None) if found is None else (found["kind"], found["model"])
    if kind in _PORTS:
        return f"chat:{model or 'MODEL'}@http://localhost:{_PORTS[kind]}/v1"
    for agent, beginnings in _MAKERS.items():
        if kind in beginnings:
            return f"{agent}:{model or 'MODEL'}"
        if kind.startswith(beginnings) and "-" in kind:
            return f"{agent}:{kind}"
    near = get_close_matches(kind, AGENTS, 1)
    return None if not near else near[0] if model is None else f"{near[0]}:{model}"
