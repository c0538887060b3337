"""Logging that harms nobody: a handler or filter of the application may raise, and a call goes on."""

from __future__ import annotations

import logging
import sys
import traceback
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final

from micdrop_agent.errors import MicdropError, describe_error

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, MutableMapping, Sequence

    from micdrop_agent.result import TraceEvent

__all__ = ["CALL", "SafeLog", "within_call"]

CALL: Final[ContextVar[Callable[[], str | None] | None]] = ContextVar("micdrop_agent.call", default=None)
"""Tells the name of the call that the current task works for: providers, health and stores serve many calls."""


@contextmanager
def within_call(call_id: Callable[[], str | None]) -> Generator[None]:
    """What is logged within belongs to the call whose name ``call_id`` tells."""
    token = CALL.set(call_id)
    try:
        yield
    finally:
        CALL.reset(token)


class SafeLog(logging.LoggerAdapter[logging.Logger]):
    """What the library itself writes to ``logger`` with.

    ``logging`` lets an error of a handler through to whoever logs. That would be the middle of
    ``cancel()``, or the end of an answer: it is printed instead, as ``logging`` does with others.
    """

    def __init__(self, logger: logging.Logger, call_id: Callable[[], str | None] | None = None) -> None:
        super().__init__(logger, {})
        self._call_id = call_id

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        """As that of the logger, but raises nothing."""
        try:
            super().log(level, msg, *args, **{**kwargs, "stacklevel": kwargs.get("stacklevel", 1) + 1})
        except Exception:  # noqa: BLE001 - foreign code: a log that cannot be written must not end a call
            if logging.raiseExceptions and sys.stderr is not None:
                traceback.print_exc()

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        """Adds the name of the call, as ``call_id``, where there is one; ``extra`` stays what it is else."""
        source = self._call_id or CALL.get()
        call_id = None if source is None else source()
        if call_id is not None:
            kwargs["extra"] = {"call_id": call_id, **(kwargs.get("extra") or {})}
        return msg, kwargs

    def course(self, trace: Sequence[TraceEvent]) -> None:
        """What happened in an answer, in one line, at DEBUG."""
        steps = ", ".join(
            f"{event.at * 1000:.1f} ms {event.kind}"
            + (f" ({' '.join(f'{key}={value}' for key, value in event.detail.items())})" if event.detail else "")
            for event in trace
        )
        end = trace[-1]
        self.debug("answer: %s", steps, extra={"answer_status": end.detail.get("status"), "answer_seconds": end.at})

    def failure(self, error: Exception) -> None:
        """An answer failed with ``error``."""
        ours = isinstance(error, MicdropError)
        extra = {"error_type": type(error).__name__, "error_kind": getattr(error, "kind", None)}
        self.error("the answer failed: %s", describe_error(error), exc_info=None if ours else error, extra=extra)
