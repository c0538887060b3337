"""Completion scripts for bash, zsh and fish, made from the tree of commands itself.

argparse tree ──▶ Command, Option ──▶ one script; it asks the program nothing while somebody types
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Final, cast

import attrs

from micdrop_agent.cli._parser import FILES, PROGRAM, WORDS, make_parser

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

__all__ = ["Command", "Option", "script", "tree"]


@attrs.frozen
class Option:
    """An option or a positional argument.

    Args:
        flags: How it is written; none for a positional argument.
        words: What it does.
        value: Name of its value; ``None`` if it takes none.
        values: How its value can begin, where that is known.
        is_file: Its value is a file.
        repeats: It may be given again.
    """

    flags: tuple[str, ...]
    words: str
    value: str | None
    values: tuple[str, ...]
    is_file: bool
    repeats: bool


@attrs.frozen
class Command:
    """A command.

    Args:
        path: Its words, such as ``("demo", "failover")``; none for the program itself.
        words: What it does.
        options: Its options.
        arguments: Its positional arguments.
        commands: The commands below it.
    """

    path: tuple[str, ...]
    words: str
    options: tuple[Option, ...]
    arguments: tuple[Option, ...]
    commands: tuple[Command, ...]

    def walk(self) -> Iterator[Command]:
        """This command and all below it."""
        yield self
        for command in self.commands:
            yield from command.walk()

    @property
    def key(self) -> str:
        """Its path as the scripts write it: ``/demo/failover``."""
        return "".join(f"/{word}" for word in self.path)


def script(shell: str) -> str:
    """The completion script for ``shell`` (``bash``, ``zsh`` or ``fish``)."""
    from micdrop_agent.cli import _completion_bash, _completion_fish, _completion_zsh

    makers: Mapping[str, Callable[[Command], str]] = {
        "bash": _completion_bash.script,
        "zsh": _completion_zsh.script,
        "fish": _completion_fish.script,
    }
    return makers[shell](tree())


def tree() -> Command:
    """All commands with their options."""
    return _command(make_parser(), (), "")


_ONCE: Final = (argparse._HelpAction, argparse._VersionAction, argparse._StoreTrueAction)  # take no value


def _command(parser: argparse.ArgumentParser, path: tuple[str, ...], words: str) -> Command:
    options: list[Option] = []
    arguments: list[Option] = []
    commands: list[Command] = []
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            # Not generic at run time, so that its type cannot be told any other way.
            branches = cast("argparse._SubParsersAction[argparse.ArgumentParser]", action)
            below: Mapping[str, argparse.ArgumentParser] = branches.choices
            helps = {choice.dest: choice.help or "" for choice in action._choices_actions}
            commands += [_command(child, (*path, name), helps[name]) for name, child in below.items()]
        else:
            (options if action.option_strings else arguments).append(_option(action))
    return Command(path, words, tuple(options), tuple(arguments), tuple(commands))


def _option(action: argparse.Action) -> Option:
    takes_value = not isinstance(action, _ONCE)
    values = tuple(str(choice) for choice in action.choices or WORDS.get(action.dest, ()))
    value = str(action.metavar or action.dest)
    return Option(
        flags=tuple(action.option_strings),
        words=(action.help or "").replace("%%", "%"),
        value=value if takes_value else None,
        values=values,
        is_file=action.dest in FILES,
        repeats=isinstance(action, argparse._AppendAction) or action.nargs == "*",
    )


def function_name() -> str:
    """Name that the shells' functions begin with."""
    return "_" + PROGRAM.replace("-", "_")
