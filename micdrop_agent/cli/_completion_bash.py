"""The completion script for bash. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from micdrop_agent.cli._completion import function_name
from micdrop_agent.cli._parser import PROGRAM

if TYPE_CHECKING:
    from micdrop_agent.cli._completion import Command, Option

__all__ = ["script"]


def script(root: Command) -> str:
    """The script; bash 4.4 or later."""
    commands = list(root.walk())
    known = "|".join(command.key for command in commands if command.path)
    values = "\n".join(_values(command, option) for command in commands for option in command.options if option.value)
    words = "\n".join(_words(command) for command in commands)
    name = function_name()
    return f"""\
# bash completion for {PROGRAM}; load it with: source <({PROGRAM} completion bash)
{name}() {{
    local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD - 1]}} at= words= options= files= i
    for ((i = 1; i < COMP_CWORD; i++)); do
        case "$at/${{COMP_WORDS[i]}}" in
            {known}) at+=/${{COMP_WORDS[i]}} ;;
        esac
    done
    COMPREPLY=()
    case "$at $before" in
{values}
        *)
            case "$at" in
{words}
            esac
            # Options where one was begun, or where nothing else is known.
            [[ $word == -* || -z $words$files ]] && words=$options files=
            ;;
    esac
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
    if [[ -n $files ]]; then
        compopt -o filenames
        mapfile -t COMPREPLY < <(compgen -f -- "$word")
    fi
}}
complete -F {name} {PROGRAM}"""


def _values(command: Command, option: Option) -> str:
    pattern = "|".join(f'"{command.key} {flag}"' for flag in option.flags)
    return f"        {pattern}) {_set(option.values, is_file=option.is_file)} ;;"


def _words(command: Command) -> str:
    options = " ".join(flag for option in command.options for flag in option.flags)
    below = tuple(child.path[-1] for child in command.commands)
    values = below + tuple(value for argument in command.arguments for value in argument.values)
    files = any(argument.is_file for argument in command.arguments)
    return f'                "{command.key}") options="{options}" {_set(values, is_file=files)} ;;'


def _set(words: tuple[str, ...], *, is_file: bool) -> str:
    return f'words="{" ".join(words)}"' + (" files=1" if is_file else "")
