"""The completion script for zsh. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from micdrop_agent.cli._completion import function_name
from micdrop_agent.cli._parser import PROGRAM

if TYPE_CHECKING:
    from micdrop_agent.cli._completion import Command, Option

__all__ = ["script"]


def script(root: Command) -> str:
    """The script; to be sourced, or put as ``_micdrop-agent`` into a directory of ``$fpath``."""
    functions = "\n\n".join(_function(command) for command in root.walk())
    name = function_name()
    return f"""\
#compdef {PROGRAM}
# zsh completion for {PROGRAM}; load it below compinit with: source <({PROGRAM} completion zsh)

{functions}

if [[ $funcstack[1] == _{PROGRAM} ]]; then
    {name} "$@"
else
    compdef {name} {PROGRAM}
fi"""


def _function(command: Command) -> str:
    specs = [_option(option) for option in command.options]
    specs += [_argument(argument) for argument in command.arguments]
    if not command.commands:
        return f"{_name(command)}() {{\n    _arguments -S \\\n{_joined(specs)}\n}}"
    specs += ["'1:command:->command'", "'*::argument:->rest'"]
    listed = "\n".join(f"                {_quoted(f'{_last(child)}:{child.words}')}" for child in command.commands)
    below = "\n".join(f"                {_last(child)}) {_name(child)} ;;" for child in command.commands)
    return f"""\
{_name(command)}() {{
    local state line curcontext=$curcontext
    local -a commands
    _arguments -C \\
{_joined(specs)}
    case $state in
        command)
            commands=(
{listed}
            )
            _describe command commands
            ;;
        rest)
            case $words[1] in
{below}
            esac
            ;;
    esac
}}"""


def _option(option: Option) -> str:
    words = option.words.replace("\\", "\\\\").replace("[", "\\[").replace("]", "\\]")
    value = "" if option.value is None else f":{option.value}:{_action(option)}"
    star = "*" if option.repeats else ""
    if len(option.flags) == 1:
        return _quoted(f"{star}{option.flags[0]}[{words}]{value}")
    flags = ",".join(option.flags)
    both = _quoted(f"({' '.join(option.flags)})")
    return f"{both}{{{flags}}}{_quoted(f'[{words}]{value}')}"


def _argument(option: Option) -> str:
    place = "*" if option.repeats else ""
    return _quoted(f"{place}:{option.value}:{_action(option)}")


def _action(option: Option) -> str:
    if option.is_file:
        return "_files"
    return f"({' '.join(option.values)})" if option.values else " "


def _joined(specs: list[str]) -> str:
    return " \\\n".join(f"        {spec}" for spec in specs)


def _name(command: Command) -> str:
    return "_".join((function_name(), *command.path))


def _last(command: Command) -> str:
    return command.path[-1]


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"
