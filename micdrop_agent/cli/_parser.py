"""The tree of commands and their options, as argparse and as what a shell completes."""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from micdrop_agent.cli._faults import FAULTS
from micdrop_agent.cli._spec import AGENTS, SYNTAX, AgentSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["FILES", "PROGRAM", "WORDS", "make_parser"]

PROGRAM: Final = "micdrop-agent"
FILES: Final = frozenset({"transcript", "resume", "store", "trace", "as_test"})
"""Arguments that are files."""

WORDS: Final[Mapping[str, tuple[str, ...]]] = {"agent": AGENTS, "fallback": AGENTS, "agents": AGENTS}
"""How the values of other arguments begin; those of a choice are known to argparse."""

_OVERVIEW: Final = """\
examples:
  micdrop-agent chat                                  talk to a small model on this machine
  micdrop-agent chat --agent openai --fallback local  talk to OpenAI; go on without it when it fails
  micdrop-agent demo failover                         watch a failover, with no key
  micdrop-agent doctor                                what works on this machine, and what is missing

exit codes: 0; 1 with one line on stderr when something failed; 2 on bad usage.
"""

_CHAT: Final = f"""\
Without --say it reads the terminal, or one turn per line from a pipe. Ctrl-C while it answers
interrupts that answer; Ctrl-C or Ctrl-D at the prompt leaves.

{SYNTAX}
examples:
  micdrop-agent chat --agent openai --fallback mistral --fallback local
  micdrop-agent chat --agent chat:qwen3:4b@http://localhost:11434/v1
  micdrop-agent chat --agent chat:MODEL@https://api.groq.com/openai/v1,key=GROQ_API_KEY
  micdrop-agent chat --store calls.db --call ada      again later: goes on with that call
  micdrop-agent chat --trace trace.html               then open trace.html in a browser
  micdrop-agent chat --agent echo --say "Hello" --json | jq .
"""

_DEMO: Final = """\
Two model servers run on this machine, so everything is real but the words: sockets, HTTP, time-outs.
The first one fails in the way that you choose; the second one is well.

faults:
{faults}

examples:
  micdrop-agent demo failover
  micdrop-agent demo failover --fault silent --timeout 0.5
  micdrop-agent demo failover --fault cut --trace trace.html
"""

_SHOW: Final = """\
examples:
  micdrop-agent show calls.db              all calls, the one that changed last at the end
  micdrop-agent show calls.db ada          that call, to be read
  micdrop-agent show calls.db ada --json   that call as wire JSON
  micdrop-agent show calls.db ada --as-test test_ada.py
                                           that call as a test, with a scripted server
"""

_DOCTOR: Final = f"""\
It sends one tiny request to each agent, up to its first chunk. Without AGENT: to each provider
whose key is set, and to the local model if it is installed. A key is never shown.
Exit code 1 if no agent can answer.

{SYNTAX}
examples:
  micdrop-agent doctor
  micdrop-agent doctor openai chat:qwen3:4b@http://localhost:11434/v1
"""

_COMPLETION: Final = """\
examples:
  bash:  source <(micdrop-agent completion bash)     in ~/.bashrc
  zsh:   source <(micdrop-agent completion zsh)      in ~/.zshrc, below compinit
  fish:  micdrop-agent completion fish > ~/.config/fish/completions/micdrop-agent.fish
"""


class _Help(argparse.RawDescriptionHelpFormatter):
    """With room for the names of our options on the line of their help."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=28)


def make_parser() -> argparse.ArgumentParser:
    """The parser of the command line. The attribute ``parser`` of what it parses is the one of the command."""
    parser = argparse.ArgumentParser(
        prog=PROGRAM,
        description="The LLM half of a live voice call, in a terminal.",
        epilog=_OVERVIEW,
        formatter_class=_Help,
        allow_abbrev=False,
    )
    parser.add_argument(
        "--version", action="version", version=f"%(prog)s {_version()}", help="show the version and leave"
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    says = "Its text goes to stdout, figures and notes to stderr."
    usage = f"{PROGRAM} chat [--agent AGENT] [--fallback AGENT ...] [options]"  # all of them would fill the screen
    _chat(_command(commands, "chat", "talk to an agent", _CHAT, says, usage))
    demo = _command(commands, "demo", "see the library at work, with no key", "")
    demos = demo.add_subparsers(dest="demo", metavar="failover", required=True)  # there is one
    listed = "\n".join(f"  {name:<11} {fault.words}" for name, fault in FAULTS.items())
    _failover(_command(demos, "failover", "one agent fails, the next goes on", _DEMO.format(faults=listed)))
    _show(_command(commands, "show", "show the calls of a store", _SHOW))
    _doctor(_command(commands, "doctor", "check what works on this machine", _DOCTOR))
    completion = _command(commands, "completion", "print the completion script of a shell", _COMPLETION)
    completion.add_argument("shell", choices=("bash", "zsh", "fish"), help="which shell")
    return parser


def _command(
    commands: Any, name: str, what: str, epilog: str, more: str = "", usage: str | None = None
) -> argparse.ArgumentParser:
    made: argparse.ArgumentParser = commands.add_parser(
        name,
        help=what,
        description=f"{what[0].upper()}{what[1:]}. {more}".strip(),
        epilog=epilog,
        formatter_class=_Help,
        allow_abbrev=False,
        usage=usage,
    )
    made.set_defaults(parser=made)
    return made


def _chat(parser: argparse.ArgumentParser) -> None:
    who = parser.add_argument_group("who answers").add_argument
    agent = _argument(AgentSpec.parse)
    who("--agent", metavar="AGENT", type=agent, default="local", help="who answers (default: local)")
    who(
        "--fallback",
        metavar="AGENT",
        type=agent,
        action="append",
        default=[],
        help="who goes on when that one fails; may be given several times, in order",
    )
    who("--first-chunk-timeout", metavar="S", type=_argument(_seconds), help="go on after so many silent seconds")
    who("--model", metavar="MODEL", help="the model of --agent, if it is not named there")
    who("--base-url", metavar="URL", help="the server of --agent, likewise")
    who("--api-key-env", metavar="VARIABLE", help="the variable that holds the API key of --agent, likewise")
    who("--system-prompt", metavar="TEXT", help="first message of the conversation (default: short spoken answers)")
    what = parser.add_argument_group("what is said").add_argument
    what("--say", metavar="TEXT", action="append", default=[], help="say this and leave; may be given several times")
    what("--json", action="store_true", help="print the conversation as wire JSON at the end, and the text to stderr")
    keep = parser.add_argument_group("what is kept").add_argument
    keep("--store", metavar="FILE", type=Path, help="keep the call in a SQLite file while it runs; it survives a crash")
    keep("--call", metavar="ID", help="the call in that store; goes on if it is there (default: a new one)")
    keep("--transcript", metavar="FILE", type=Path, help="save the conversation as wire JSON after each turn")
    keep("--resume", metavar="FILE", type=Path, help="go on with a saved conversation")
    keep("--trace", metavar="FILE", type=Path, help="write a web page that shows what happened inside each answer")
    _backend(parser)


def _failover(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--fault",
        choices=tuple(FAULTS),
        metavar="FAULT",
        default="cut",
        help="what the first server does (default: cut)",
    )
    add(
        "--timeout",
        metavar="S",
        type=_argument(_seconds),
        default=1.0,
        help="silent seconds before the switch (default: 1)",
    )
    add("--trace", metavar="FILE", type=Path, help="also write a web page that shows what happened inside the answer")
    _backend(parser)


def _show(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("store", metavar="FILE", type=Path, help="a store, as chat --store or SqliteStore makes it")
    parser.add_argument("call", metavar="ID", nargs="?", help="a call in it")
    parser.add_argument("--json", action="store_true", help="as JSON")
    parser.add_argument(
        "--as-test", metavar="TEST", type=Path, help="write that call as a test for pytest (a new file)"
    )


def _doctor(parser: argparse.ArgumentParser) -> None:
    agent = _argument(AgentSpec.parse)
    parser.add_argument(
        "agents", metavar="AGENT", type=agent, nargs="*", help="ask these (default: all that are set up)"
    )
    parser.add_argument(
        "--timeout",
        metavar="S",
        type=_argument(_seconds),
        default=10.0,
        help="seconds to the first chunk (default: 10)",
    )
    _backend(parser)


def _backend(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--backend", choices=("asyncio", "trio"), metavar="LOOP", default="asyncio", help="asyncio (default) or trio"
    )


def _argument(convert: Callable[[str], Any]) -> Callable[[str], Any]:
    """``convert`` with its own words in the message of a refusal."""

    def converted(text: str) -> Any:
        try:
            return convert(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    return converted


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not (math.isfinite(seconds) and seconds > 0):
        raise ValueError(f"{text!r} is not a number of seconds above 0")
    return seconds


def _version() -> str:
    from micdrop_agent import __version__

    return __version__
