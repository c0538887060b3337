"""Completion scripts for bash, zsh and fish: shtab writes them from the tree of commands itself."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, cast

from micdrop_agent._extras import install_command
from micdrop_agent.cli._parser import make_parser
from micdrop_agent.cli._spec import AGENTS
from micdrop_agent.errors import MicdropError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["arguments", "script"]


def script(shell: str) -> str:
    """The completion script for ``shell`` (``bash``, ``zsh`` or ``fish``).

    Raises:
        MicdropError: shtab is not installed.
    """
    try:
        import shtab
    except ImportError as error:
        raise MicdropError(f"completion needs shtab; run: {install_command('completion')}") from error
    parser = make_parser()
    for argument in arguments(parser):
        if argument.type is Path:
            argument.complete = shtab.FILE  # type: ignore[attr-defined] # shtab's own way to mark an action
        elif argument.metavar == "AGENT":
            argument.choices = AGENTS  # this parser parses nothing
    return shtab.complete(parser, shell)


def arguments(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """All options and arguments of ``parser`` and of the commands below it."""
    for action in parser._actions:
        yield action
        # argparse has no public name for it, and it is not generic at run time.
        if isinstance(action, argparse._SubParsersAction):  # pyright: ignore[reportPrivateUsage]
            commands = cast("argparse._SubParsersAction[argparse.ArgumentParser]", action)  # pyright: ignore[reportPrivateUsage]
            for command in commands.choices.values():
                yield from arguments(command)
