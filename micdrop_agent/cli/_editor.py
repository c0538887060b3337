"""A prompt with line editing, history and pasted lines, by ``prompt_toolkit`` (extra ``chat``).

``prompt_toolkit`` knows asyncio only, so it runs in a worker thread with a loop of its own, on Trio too. The
terminal is in raw mode then: Ctrl-C comes as a key, and not as a signal.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Editor", "can_edit", "history_file"]


def can_edit() -> bool:
    """Whether lines can be edited here: the package is installed, and both ends are a terminal."""
    if importlib.util.find_spec("prompt_toolkit") is None or os.environ.get("TERM") == "dumb":
        return False
    return sys.stdin.isatty() and sys.stderr.isatty()


def history_file() -> Path:
    """Where the lines of earlier runs are: below ``XDG_STATE_HOME``, or ``LOCALAPPDATA`` on Windows."""
    if sys.platform == "win32":
        home = os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local"
    else:
        home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(home) / "micdrop-agent" / "history"


class Editor:
    """Asks for one turn at a time. Several pasted lines are one turn.

    Args:
        hint: Shows ``text``, a line for the person, above the prompt.
    """

    def __init__(self, hint: Callable[[str], None]) -> None:
        from prompt_toolkit import PromptSession
        from prompt_toolkit.output import create_output

        self._hint = hint
        # The text of the agent goes to stdout, which may be a pipe; all else goes to stderr.
        self._session: PromptSession[str] = PromptSession(history=_history(), output=create_output(stdout=sys.stderr))

    async def next(self) -> str | None:
        """The next turn; ``None`` when the person leaves (Ctrl-D, or Ctrl-C twice)."""
        interrupted = False
        while True:
            try:
                return await self._ask()
            except EOFError:
                return None
            except KeyboardInterrupt:
                if interrupted:
                    return None
                interrupted = True
                self._hint("press Ctrl-C again to leave")

    async def _ask(self) -> str:
        answer: str | BaseException = ""
        async with anyio.create_task_group() as tasks:
            # A thread cannot be cancelled: the prompt in it is asked to end.
            tasks.start_soon(self._end_with_the_scope)
            answer = await anyio.to_thread.run_sync(self._prompt)
            tasks.cancel_scope.cancel()
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def _prompt(self) -> str | BaseException:
        """Ask, in a worker thread; how the person left is a value there, and raised by the caller."""
        from prompt_toolkit.patch_stdout import patch_stdout

        try:
            with patch_stdout(raw=True):
                return self._session.prompt(
                    "you> ", handle_sigint=False, set_exception_handler=False, reserve_space_for_menu=0
                )
        except (EOFError, KeyboardInterrupt) as left:
            return left

    async def _end_with_the_scope(self) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            app = self._session.app
            loop = app.loop
            if app.is_running and loop is not None:
                loop.call_soon_threadsafe(_exit, app)


def _exit(app: Any) -> None:
    if app.is_running and not app.future.done():
        app.exit(exception=EOFError())


def _history() -> Any:
    """The history of earlier runs; only that of this one where it cannot be kept."""
    from prompt_toolkit.history import FileHistory, InMemoryHistory

    file = history_file()
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        file.touch(mode=0o600)
    except OSError:
        return InMemoryHistory()
    return FileHistory(str(file))
