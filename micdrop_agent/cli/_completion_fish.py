"""The completion script for fish. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from micdrop_agent.cli._completion import function_name
from micdrop_agent.cli._parser import PROGRAM

if TYPE_CHECKING:
    from micdrop_agent.cli._completion import Command, Option

__all__ = ["script"]


def script(root: Command) -> str:
    """The script; fish 3 or later."""
    commands = list(root.walk())
    known = " ".join(command.key for command in commands if command.path)
    lines = "\n".join(line for command in commands for line in _lines(command))
    return f"""\
# fish completion for {PROGRAM}; put it into ~/.config/fish/completions/{PROGRAM}.fish
function _{function_name()}_at
    set -l at ''
    for word in (commandline -opc)[2..-1]
        switch "$at/$word"
            case {known}
                set at "$at/$word"
        end
    end
    test "$at" = "$argv[1]"
end

complete -c {PROGRAM} -f
{lines}"""


def _lines(command: Command) -> list[str]:
    head = f"complete -c {PROGRAM} -n '_{function_name()}_at \"{command.key}\"'"
    lines = [f"{head} -a {child.path[-1]} -d {_quoted(child.words)}" for child in command.commands]
    lines += [f"{head} {_argument(argument)}" for argument in command.arguments]
    lines += [f"{head} {_option(option)}" for option in command.options]
    return lines


def _option(option: Option) -> str:
    flags = " ".join(f"-l {flag[2:]}" if flag.startswith("--") else f"-s {flag[1:]}" for flag in option.flags)
    value = ""
    if option.is_file:
        value = " -r -F"
    elif option.values:
        value = f" -x -a {_quoted(' '.join(option.values))}"
    elif option.value is not None:
        value = " -x"
    return f"{flags}{value} -d {_quoted(option.words)}"


def _argument(option: Option) -> str:
    if option.is_file:
        return f"-F -d {_quoted(option.words)}"
    return f"-a {_quoted(' '.join(option.values))} -d {_quoted(option.words)}"


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
