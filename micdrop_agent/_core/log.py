"""Logging that harms nobody: a handler or filter of the application may raise, and a call goes on."""

from __future__ import annotations

import logging
import sys
import traceback
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import MutableMapping

__all__ = ["SafeLog"]


class SafeLog(logging.LoggerAdapter[logging.Logger]):
    """What the library itself writes to ``logger`` with.

    ``logging`` lets an error of a handler through to whoever logs. That would be the middle of
    ``cancel()``, or the end of an answer: it is printed instead, as ``logging`` does with others.
    """

    def __init__(self, logger: logging.Logger) -> None:
        super().__init__(logger, {})

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        """As that of the logger, but raises nothing."""
        try:
            super().log(level, msg, *args, **{**kwargs, "stacklevel": kwargs.get("stacklevel", 1) + 1})
        except Exception:  # noqa: BLE001 - foreign code: a log that cannot be written must not end a call
            if logging.raiseExceptions and sys.stderr is not None:
                traceback.print_exc()

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        """Nothing is added: ``extra`` stays what it is."""
        return msg, kwargs
