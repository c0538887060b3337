"""Running a scenario on both loops that speak asyncio's protocols, in real time and bounded."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

import anyio
import pytest

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

loops = pytest.mark.parametrize(
    "uv",
    [
        False,
        pytest.param(True, marks=pytest.mark.skipif(not importlib.util.find_spec("uvloop"), reason="needs uvloop")),
    ],
    ids=["asyncio", "uvloop"],
)


def run(uv: bool, scenario: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        with anyio.fail_after(30):
            await scenario()

    anyio.run(bounded, backend="asyncio", backend_options={"use_uvloop": uv})
