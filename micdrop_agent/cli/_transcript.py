"""A conversation in a file, as wire JSON: read to resume it, written after each turn."""

from __future__ import annotations

from typing import TYPE_CHECKING

from micdrop_agent import wire
from micdrop_agent.cli._files import write_whole
from micdrop_agent.errors import MicdropError
from micdrop_agent.messages import Message

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from micdrop_agent.messages import Item

__all__ = ["load", "prompt_of", "save"]


def load(file: Path) -> list[Item]:
    """The conversation in ``file``, written by ``save`` or by anything that writes Micdrop's.

    Raises:
        MicdropError: The file cannot be read, or holds no conversation.
    """
    try:
        return wire.loads(file.read_bytes())
    except OSError as error:
        raise MicdropError(f"cannot resume from {str(file)!r}: {error.strerror}") from error
    except wire.WireError as error:
        raise MicdropError(f"cannot resume from {str(file)!r}: {error}") from error


def prompt_of(items: Sequence[Item]) -> str | None:
    """The system prompt that ``items`` begin with, if they do."""
    first = items[0] if items else None
    return first.content if isinstance(first, Message) and first.role == "system" else None


def save(items: Sequence[Item], file: Path) -> None:
    """Write ``items`` to ``file``.

    Raises:
        MicdropError: It cannot be written.
    """
    write_whole(wire.dumps(items) + "\n", file, "the transcript")
