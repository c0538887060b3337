"""The command ``micdrop-agent``: talk to an agent in a terminal or from a script, and look into calls.

    arguments ──▶ parse ──▶ ChatArguments ─────▶ Session ──▶ Screen (text: stdout, all else: stderr)
                      └───▶ DemoArguments, ShowArguments, DoctorArguments, CompletionArguments ──▶ stdout

Exit codes: 0; 1 with one line on stderr when something failed; 2 on bad usage. A command loads only
what it needs itself.
"""

from __future__ import annotations

import errno
import logging
import os
import sys
from typing import TYPE_CHECKING, Any, Final, cast

from micdrop_agent.cli._options import (
    ChatArguments,
    CompletionArguments,
    DemoArguments,
    DoctorArguments,
    ShowArguments,
    UsageError,
    parse,
)
from micdrop_agent.errors import MicdropError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from micdrop_agent.cli._options import Arguments, Backend

__all__ = ["main"]

FAILED: Final = 1
BAD_USAGE: Final = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    Args:
        arguments: What follows the program's name; ``sys.argv[1:]`` if left out.

    Raises:
        SystemExit: Arguments that argparse refuses (code 2), ``--help`` and ``--version`` (0).
    """
    # An answer's failure reaches the user as one line; the library's own log record of it would
    # be a second one, which logging prints by itself when nobody has set it up.
    logging.getLogger("micdrop_agent").addHandler(logging.NullHandler())
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            cast("Any", stream).reconfigure(errors="replace")
    try:
        code = _run(parse(arguments))
        sys.stdout.flush()
    except (Exception, KeyboardInterrupt, BaseExceptionGroup) as raised:
        failed = _told(_lone(raised))
        if failed is None:
            raise
        return failed
    return code


def _run(options: Arguments) -> int:
    match options:
        case ChatArguments():
            from micdrop_agent.cli._session import chat

            return _in_loop(options.backend, chat, options)
        case DemoArguments():
            from micdrop_agent.cli._demo import failover

            return _in_loop(options.backend, _ended_by_ctrl_c(failover), options)
        case ShowArguments():
            from micdrop_agent.cli._show import show

            return _in_loop("asyncio", _ended_by_ctrl_c(show), options)
        case DoctorArguments():
            from micdrop_agent.cli._doctor import doctor

            return _in_loop(options.backend, _ended_by_ctrl_c(doctor), options)
        case CompletionArguments():
            from micdrop_agent.cli._completion import script

            print(script(options.shell))
            return 0


def _in_loop(backend: Backend, command: Callable[..., Awaitable[int]], options: Arguments) -> int:
    from micdrop_agent._extras import install_command, installed

    if backend == "trio" and not installed("trio"):
        raise MicdropError(f"Trio is not installed; run: {install_command('trio')}")
    import anyio

    return anyio.run(command, options, backend=backend)


def _ended_by_ctrl_c(command: Callable[..., Awaitable[int]]) -> Callable[..., Awaitable[int]]:
    """``command``, cancelled by Ctrl-C and not interrupted in the middle of a step.

    Python's ``KeyboardInterrupt`` may come up anywhere, also where a task is just being started: its
    coroutine is then never awaited, and the user is warned of it. (A chat has its own use for Ctrl-C.)
    """

    async def run(options: Arguments) -> int:
        import anyio

        from micdrop_agent._core.groups import lone_error_unwrapped
        from micdrop_agent.cli._interrupts import forgive_accepting, interrupts

        async def watch() -> None:
            async for _ in signals:
                forgive_accepting()
                tasks.cancel_scope.cancel()

        code: int | None = None
        with interrupts() as signals, lone_error_unwrapped():
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(watch)
                code = await command(options)
                tasks.cancel_scope.cancel()
        if code is None:
            raise KeyboardInterrupt
        return code

    return run


def _lone(error: BaseException) -> BaseException:
    """What the groups around a single error hold (a host of several task groups hands them on)."""
    if isinstance(error, BaseExceptionGroup):
        inner: Sequence[BaseException] = cast("BaseExceptionGroup[BaseException]", error).exceptions
        return _lone(inner[0]) if len(inner) == 1 else cast("BaseException", error)
    return error


def _told(error: BaseException) -> int | None:
    """Tell the user of ``error``; the exit code, or ``None`` for a bug of ours."""
    match error:
        case UsageError():
            return _complain(error, BAD_USAGE)
        case BrokenPipeError():
            _give_up_stdout()  # its reader is gone (``| head``): there is nothing to say
            return FAILED
        case KeyboardInterrupt():
            return _complain(MicdropError("interrupted"), FAILED)
        case OSError(errno=errno.ENOSPC | errno.EDQUOT | errno.EFBIG | errno.EIO, filename=None):
            return _complain(OSError(f"cannot write the output: {error.strerror}"), FAILED)
        case MicdropError() | OSError():
            return _complain(error, FAILED)
        case _:
            return None


def _complain(error: Exception, code: int) -> int:
    from micdrop_agent.cli._parser import PROGRAM
    from micdrop_agent.cli._screen import one_line

    print(f"{PROGRAM}: error: {one_line(str(error))}", file=sys.stderr)
    try:
        sys.stdout.flush()
    except OSError:  # a full disk: what could not be written is still there, and would be tried again at exit
        _give_up_stdout()
    return code


def _give_up_stdout() -> None:
    """Let nothing be flushed to the real stdout at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
