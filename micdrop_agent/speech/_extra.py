"""The packages of the extra ``speech``, imported where they are used first."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from micdrop_agent._extras import install_command
from micdrop_agent.errors import MicdropError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["sentencex_segment"]


def sentencex_segment() -> Callable[[str, str], list[str]]:
    """Sentencex's ``segment(language, text)``.

    Raises:
        MicdropError: It is not installed.
    """
    try:
        module = importlib.import_module("sentencex")
    except ImportError as error:
        raise MicdropError(f"sentencex is not installed; run: {install_command('speech')}") from error
    segment: Callable[[str, str], list[str]] = module.segment
    return segment
