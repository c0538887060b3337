"""What a run leaves behind."""

from __future__ import annotations

import gc
import warnings
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING

import anyio
import anyio.lowlevel

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator

_SETTLE_STEPS = 30
"""Scheduling steps in which a task that is on its way out may end."""


@asynccontextmanager
async def assert_no_leaks() -> AsyncGenerator[None]:
    """Check that the block leaves no task and no resource that has to be closed by the garbage collector.

        async with assert_no_leaks():
            async with MyAgent() as agent: ...

    Raises:
        AssertionError: A task that was started inside is still alive, or a ``ResourceWarning`` was given.
    """
    gc.collect()  # what others have left is not held against the block
    before = {task.id for task in anyio.get_running_tasks()}
    with _resource_warnings() as warned:
        yield
        for _ in range(_SETTLE_STEPS):
            await anyio.lowlevel.checkpoint()
        gc.collect()
    left = [task for task in anyio.get_running_tasks() if task.id not in before]
    if left:
        raise AssertionError(f"tasks are left: {', '.join(str(task.name) for task in left)}")
    if warned:
        raise AssertionError(f"resources are left: {'; '.join(warned)}")


@contextmanager
def _resource_warnings() -> Generator[list[str]]:
    found: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ResourceWarning)
        yield found
    found += [str(entry.message) for entry in caught if issubclass(entry.category, ResourceWarning)]
