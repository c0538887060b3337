"""A conversation in a file, as wire JSON: read to resume it, written after each turn."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from micdrop_agent import wire
from micdrop_agent.errors import MicdropError
from micdrop_agent.messages import Message

if TYPE_CHECKING:
    from micdrop_agent.agent import Agent
    from micdrop_agent.messages import Item

__all__ = ["resume", "save"]


def resume(agent: Agent, file: Path, system_prompt: str | None) -> None:
    """Put the conversation in ``file`` in the place of the agent's own.

    Args:
        agent: Its conversation is replaced.
        file: Written by ``save``, or by anything that writes Micdrop's conversations.
        system_prompt: Replaces the one in the file; ``None`` keeps that.

    Raises:
        MicdropError: The file cannot be read, or holds no conversation.
    """
    try:
        items = wire.loads(file.read_bytes())
    except OSError as error:
        raise MicdropError(f"cannot resume from {str(file)!r}: {error.strerror}") from error
    except wire.WireError as error:
        raise MicdropError(f"cannot resume from {str(file)!r}: {error}") from error
    begins = bool(items) and isinstance(items[0], Message) and items[0].role == "system"
    if system_prompt is not None or not begins:
        items = [agent.conversation[0], *items[int(begins) :]]
    agent.conversation.replace(items)


def save(items: list[Item], file: Path) -> None:
    """Write ``items`` to ``file``, whole or not at all: whoever reads it meanwhile sees the last state.

    A new file can be read by its owner only; it is somebody's conversation.

    Raises:
        MicdropError: It cannot be written.
    """
    text = wire.dumps(items) + "\n"
    target = file.resolve()  # a link stays a link
    temporary: str | None = None
    try:
        descriptor, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        with open(descriptor, "w", encoding="utf-8") as opened:  # noqa: PTH123 - a descriptor is no path
            opened.write(text)
            opened.flush()
            os.fsync(descriptor)
        if target.exists():
            Path(temporary).chmod(stat.S_IMODE(target.stat().st_mode))
        Path(temporary).replace(target)
        temporary = None
    except OSError as error:
        raise MicdropError(f"cannot save the transcript {str(file)!r}: {error.strerror}") from error
    finally:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)
