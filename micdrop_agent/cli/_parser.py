"""The tree of commands and their options, as argparse and as what a shell completes."""

from __future__ import annotations

import argparse
from typing import Any, Final

from micdrop_agent.cli._faults import FAULTS
from micdrop_agent.cli._options import (
    ChatArguments,
    CompletionArguments,
    DemoArguments,
    DoctorArguments,
    ShowArguments,
    add_arguments,
)
from micdrop_agent.cli._spec import SYNTAX

__all__ = ["PROGRAM", "make_parser"]

PROGRAM: Final = "micdrop-agent"
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
    add_arguments(_command(commands, "chat", "talk to an agent", _CHAT, says, usage), ChatArguments)
    demo = _command(commands, "demo", "see the library at work, with no key", "")
    demos = demo.add_subparsers(dest="demo", metavar="failover", required=True)  # there is one
    listed = "\n".join(f"  {name:<11} {fault.words}" for name, fault in FAULTS.items())
    failover = _command(demos, "failover", "one agent fails, the next goes on", _DEMO.format(faults=listed))
    add_arguments(failover, DemoArguments)
    add_arguments(_command(commands, "show", "show the calls of a store", _SHOW), ShowArguments)
    add_arguments(_command(commands, "doctor", "check what works on this machine", _DOCTOR), DoctorArguments)
    completion = _command(commands, "completion", "print the completion script of a shell", _COMPLETION)
    add_arguments(completion, CompletionArguments)
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


def _version() -> str:
    from micdrop_agent import __version__

    return __version__
