"""The arguments of the command line, checked as far as that needs no agent."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import attrs

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["PROGRAM", "AgentName", "ChatOptions", "UsageError", "parse"]

PROGRAM: Final = "micdrop-agent"
AgentName = Literal["local", "echo", "chat", "openai", "mistral"]
AGENTS: Final[tuple[AgentName, ...]] = ("local", "echo", "chat", "openai", "mistral")
SYSTEM_PROMPT: Final = "You are a helpful voice assistant. Answer in one or two short sentences."

EPILOG: Final = """\
Without --say it reads the terminal, or one turn per line from a pipe. Ctrl-C while it answers
interrupts that answer; Ctrl-C or Ctrl-D at the prompt leaves.
"""


class UsageError(Exception):
    """Arguments that do not fit together (exit code 2)."""


@attrs.frozen(kw_only=True)
class ChatOptions:
    """The arguments of ``micdrop-agent chat``; each attribute is the option of that name."""

    agent: AgentName = "local"
    model: str | None = None
    base_url: str | None = None
    api_key_env: str | None = None
    system_prompt: str | None = None
    backend: Literal["asyncio", "trio"] = "asyncio"
    say: tuple[str, ...] = ()
    json: bool = False
    transcript: Path | None = None
    resume: Path | None = None

    @property
    def prompt(self) -> str:
        """The system prompt of a conversation that begins here."""
        return SYSTEM_PROMPT if self.system_prompt is None else self.system_prompt


def parse(arguments: Sequence[str] | None) -> ChatOptions:
    """The options in ``arguments`` (``None``: those of the process).

    Raises:
        SystemExit: They are wrong, or ask for help or the version; a message has been printed.
    """
    parser, chat = _parsers()
    found = vars(parser.parse_args(arguments))
    found.pop("command")
    # Bytes of the command line that are no text came in as lone surrogates, which no JSON can carry.
    found["say"] = tuple(text.encode(errors="replace").decode() for text in found["say"])
    options = ChatOptions(**found)
    problem = _problem(options)
    if problem is not None:
        chat.error(problem)
    return options


def _problem(options: ChatOptions) -> str | None:
    """What does not fit together, if anything."""
    if options.agent == "chat" and options.base_url is None:
        return "--agent chat needs --base-url URL (for example http://localhost:11434/v1)"
    if options.agent == "chat" and options.model is None:
        return "--agent chat needs --model M, as the server names it"
    if options.agent in {"local", "echo"}:
        for value, name in ((options.base_url, "--base-url"), (options.api_key_env, "--api-key-env")):
            if value is not None:
                return f"--agent {options.agent} talks to no server and takes no {name}"
    if options.agent == "echo" and options.model is not None:
        return "--agent echo has no model and takes no --model"
    if any(not text.strip() for text in options.say):
        return "--say needs a text"
    return None


def _parsers() -> tuple[argparse.ArgumentParser, argparse.ArgumentParser]:
    parser = argparse.ArgumentParser(prog=PROGRAM, description="The LLM half of a live voice call, in a terminal.")
    parser.add_argument("--version", action="version", version=f"%(prog)s {_version()}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    chat = commands.add_parser(
        "chat",
        help="talk to an agent",
        description="Talk to an agent. Its text goes to stdout, figures and notes to stderr.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = chat.add_argument
    add("--agent", choices=AGENTS, default="local", help="who answers (default: local, an embedded model)")
    add("--model", metavar="M", help="the model's name; for --agent local the path of a GGUF file")
    add("--base-url", metavar="URL", help="the server, up to and with its version (…/v1)")
    add("--api-key-env", metavar="NAME", help="environment variable that holds the API key")
    add("--system-prompt", metavar="S", help="first message of the conversation (default: short spoken answers)")
    add("--backend", choices=("asyncio", "trio"), default="asyncio", help="event loop (default: asyncio)")
    add("--say", metavar="TEXT", action="append", default=[], help="say this and leave; may be given several times")
    add("--json", action="store_true", help="print the conversation as wire JSON at the end, and the text to stderr")
    add("--transcript", metavar="FILE", type=Path, help="save the conversation as wire JSON after each turn")
    add("--resume", metavar="FILE", type=Path, help="go on with a saved conversation")
    return parser, chat


def _version() -> str:
    from micdrop_agent import __version__

    return __version__
