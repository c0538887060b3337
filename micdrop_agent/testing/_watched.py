"""Watches one ``generate_answer``: was its cancellation delivered to it, and did it end all the same as if nothing were?

An object of its own stands between the answer's task and the coroutine, and sees everything that the event
loop sends or throws into it. asyncio throws a cancellation; Trio sends it wrapped as an outcome.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, cast

import anyio

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator

__all__ = ["Watched"]

_FOREIGN: Final = re.compile(r"[/\\](?:anyio|trio|asyncio)[/\\]")
"""Where an agent's own lines end."""


class Watched:
    """An awaitable that stands for another one.

    Args:
        awaitable: What ``generate_answer`` returned.
        is_cancelled: Whether the answer has been cancelled.
        scope: The answer's cancel scope.
    """

    def __init__(self, awaitable: Awaitable[Any], is_cancelled: Callable[[], bool], scope: object) -> None:
        self._inner: Any = awaitable
        self._generator: Any = cast("Any", awaitable).__await__()
        self._is_cancelled = is_cancelled
        self._scope = scope
        self.delivered = False
        """The cancellation of the answer reached it."""
        self.ended_normally = False

    @property
    def swallowed(self) -> bool:
        """It received its cancellation, and returned as if it had not."""
        return self.delivered and self.ended_normally

    @property
    def where(self) -> str:
        """The line that it is waiting at."""
        waiter, found = self._inner, None
        while (frame := getattr(waiter, "cr_frame", None)) is not None:
            if found is not None and _FOREIGN.search(frame.f_code.co_filename):
                break
            found, waiter = frame, waiter.cr_await
        return "it has ended" if found is None else f"{found.f_code.co_filename}:{found.f_lineno}"

    def __await__(self) -> Generator[Any, Any, Any]:
        return cast("Any", self)  # type: ignore[no-any-return]  # it has all that `await` uses of a generator

    def __iter__(self) -> Watched:
        return self

    def __next__(self) -> Any:
        return self.send(None)

    def send(self, value: Any) -> Any:
        """Go on; Trio wraps what it has to say."""
        self._look(getattr(value, "error", None))
        return self._go_on(self._generator.send, value)

    def throw(self, *error: Any) -> Any:
        """Go on with an error."""
        self._look(error[0])
        return self._go_on(self._generator.throw, *error)

    def close(self) -> None:
        """Give it up."""
        self._generator.close()

    def _go_on(self, step: Callable[..., Any], *values: Any) -> Any:
        try:
            return step(*values)
        except StopIteration:
            self.ended_normally = True
            raise

    def _look(self, error: object) -> None:
        if isinstance(error, anyio.get_cancelled_exc_class()) and self._is_cancelled() and self._is_ours(error):
            self.delivered = True

    def _is_ours(self, error: BaseException) -> bool:
        """Whether it came from the answer's own scope, and not from one within, which may end it rightly."""
        source = getattr(error, "source", None)  # Trio's
        if source is not None:
            return bool(source == "explicit")
        return f"{id(self._scope):x}" in str(error)
