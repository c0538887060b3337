"""An agent in one word of the command line: ``KIND[:MODEL][@URL][,key=VARIABLE]``."""

from __future__ import annotations

import re
from pathlib import PurePath
from typing import TYPE_CHECKING, Final, Literal, cast, get_args

import attrs

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["AGENTS", "KEYS", "SYNTAX", "AgentName", "AgentSpec"]

AgentName = Literal["local", "echo", "chat", "openai", "mistral"]
AGENTS: Final[tuple[AgentName, ...]] = get_args(AgentName)
KEYS: Final[Mapping[str, str]] = {"openai": "OPENAI_API_KEY", "mistral": "MISTRAL_API_KEY"}
"""Environment variables of the agents that want a key."""

SYNTAX: Final = """\
AGENT is KIND[:MODEL][@URL][,key=VARIABLE]:
  local[:FILE.gguf]   a model inside this process; no key, no network
  openai[:MODEL]      OpenAI; the key comes from OPENAI_API_KEY
  mistral[:MODEL]     Mistral; the key comes from MISTRAL_API_KEY
  chat:MODEL@URL      any server with Chat Completions: Ollama, vLLM, llama.cpp, Groq, OpenRouter, …
  echo                says what you said
URL is the server up to and with its version (http://localhost:11434/v1); VARIABLE is the
environment variable that holds the API key.
"""

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

    kind: AgentName
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
            raise ValueError(f"{text!r} is no agent; there are {', '.join(AGENTS)}, and for example chat:MODEL@URL")
        if found["colon"] == ":":
            raise ValueError(f"{text!r} names no model behind the colon")
        return cls(cast("AgentName", found["kind"]), found["model"], found["url"], found["key"])

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
        if self.kind == "chat" and self.base_url is None:
            return "the agent chat needs a server: chat:MODEL@http://localhost:11434/v1, or --base-url URL"
        if self.kind == "chat" and self.model is None:
            return "the agent chat needs a model, as its server names it: chat:MODEL@URL, or --model MODEL"
        if self.kind in {"local", "echo"} and (self.base_url is not None or self.key_variable is not None):
            return f"the agent {self.kind} talks to no server and takes no URL and no key"
        if self.kind == "echo" and self.model is not None:
            return "the agent echo has no model"
        return None
