"""Which asyncio event loop runs here, found without loading asyncio."""

from __future__ import annotations

import sys

__all__ = ["running_loop"]


def running_loop() -> object:
    """The asyncio event loop that runs in this thread; ``None`` under Trio or without one."""
    # Read without an import: under Trio asyncio may never have been loaded.
    asyncio = sys.modules.get("asyncio")
    return None if asyncio is None else asyncio._get_running_loop()
