"""What stands behind a callable: its plain function, its name, whether it is async."""

from __future__ import annotations

import functools
import inspect
from typing import Any


def innermost(function: Any) -> Any:
    """The plain function below partials, decorators, bound methods and callable objects."""
    while True:
        if isinstance(function, functools.partial):
            function = function.func
        elif hasattr(function, "__wrapped__"):
            function = function.__wrapped__
        elif inspect.ismethod(function):
            function = function.__func__
        elif not hasattr(function, "__globals__") and inspect.isfunction(type(function).__call__):
            function = type(function).__call__
        else:
            return function


def is_async(function: Any) -> bool:
    """Whether calling it gives a coroutine, as far as that can be seen."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(innermost(function))


def name_of(function: Any) -> str:
    """The name in error messages."""
    return getattr(innermost(function), "__qualname__", None) or repr(function)
