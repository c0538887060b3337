"""What the user sees: the agent's text on stdout, prompts, figures and notes on stderr."""

from __future__ import annotations

import os
import re
import shutil
import sys
from typing import TYPE_CHECKING, Final

import attrs

from micdrop_agent.cli._wrap import Wrap

if TYPE_CHECKING:
    from typing import TextIO

__all__ = ["Figures", "Paint", "Screen", "duration", "one_line", "printable"]

RESET: Final = "\x1b[0m"
# A model's text could otherwise move the cursor or retitle the window.
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def one_line(text: str) -> str:
    """``text`` on a single line, without control characters."""
    return printable(" ".join(text.split()))


def printable(text: str) -> str:
    """``text`` without what could move the cursor; line breaks stay."""
    return _CONTROL.sub("", text)


class Paint:
    """Colours, where ``stream`` is a terminal that has them and nobody objects (NO_COLOR)."""

    def __init__(self, stream: TextIO) -> None:
        self._on = stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"

    def dim(self, text: str) -> str:
        """What matters less."""
        return self._paint(text, 2)

    def bold(self, text: str) -> str:
        """What matters more."""
        return self._paint(text, 1)

    def green(self, text: str) -> str:
        """What is well."""
        return self._paint(text, 32)

    def yellow(self, text: str) -> str:
        """What changed, or is missing."""
        return self._paint(text, 33)

    def red(self, text: str) -> str:
        """What failed."""
        return self._paint(text, 31)

    def _paint(self, text: str, code: int) -> str:
        return f"\x1b[{code}m{text}{RESET}" if self._on and text else text


@attrs.frozen(kw_only=True)
class Figures:
    """How fast one answer was.

    Args:
        first: Seconds to its first chunk; ``None`` if there was none.
        total: Seconds to its end.
        chunks: How many chunks came.
    """

    first: float | None
    total: float
    chunks: int

    def __str__(self) -> str:
        if self.first is None:
            return f"no text · total {duration(self.total)}"
        # The rate is that of the stream itself: the wait for its beginning has its own figure.
        streamed = self.total - self.first
        rate = f", {(self.chunks - 1) / streamed:.0f}/s" if self.chunks > 1 and streamed > 0 else ""
        return f"first chunk {duration(self.first)} · total {duration(self.total)} · {_count(self.chunks)}{rate}"


def duration(seconds: float) -> str:
    """A duration with the digits that matter."""
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"


def _count(chunks: int) -> str:
    return "1 chunk" if chunks == 1 else f"{chunks} chunks"


class Screen:
    """Writes to the two streams.

    Args:
        json_only: stdout is kept for the JSON at the end; the text goes to stderr too.
        prompting: A person types: show prompts.
    """

    def __init__(self, *, json_only: bool, prompting: bool) -> None:
        self._text: TextIO = sys.stderr if json_only else sys.stdout
        self._raw = not self._text.isatty()
        # A note in mid-sentence needs a line of its own where both are seen; a pipe keeps the sentence together.
        self._shared = json_only or (sys.stdout.isatty() and sys.stderr.isatty())
        self._paint = Paint(sys.stderr)
        self._prompting = prompting
        self._at_prompt = False
        self._open_line = False
        self._spinning = False
        terminal = self._shared and not self._raw and os.environ.get("TERM") != "dumb"
        self._may_spin = terminal
        self._wrap = Wrap(shutil.get_terminal_size().columns) if terminal else None

    def prompt(self) -> None:
        """Ask for the next turn."""
        if self._prompting:
            self._at_prompt = True
            self._note("you> ", end="")

    def answered(self) -> None:
        """The person has ended the line at the prompt."""
        self._at_prompt = False

    def chunk(self, text: str) -> None:
        """Show a piece of the answer at once."""
        if text:
            self._stop_spinning()
            shown = text if self._raw else printable(text)
            self._text.write(shown if self._wrap is None else self._wrap.feed(shown))
            self._text.flush()
            self._open_line = not text.endswith("\n")

    def spin(self, frame: str) -> None:
        """Show that the answer is awaited; the next output takes the frame away."""
        if self._may_spin and not self._open_line:
            self._spinning = True
            print(f"\r{frame} ", end="", file=sys.stderr, flush=True)

    def _stop_spinning(self) -> None:
        if self._spinning:
            self._spinning = False
            print("\r  \r", end="", file=sys.stderr, flush=True)

    def end_of_text(self) -> None:
        """Close the line that the answer left open."""
        self._stop_spinning()
        if self._wrap is not None:
            self._wrap.newline()
        if self._open_line:
            self._open_line = False
            self._text.write("\n")
            self._text.flush()

    def note(self, text: str) -> None:
        """Show one dim line about what happened."""
        self._stop_spinning()
        if self._shared:
            self.end_of_text()
        again = self._at_prompt
        if again:
            self.new_line()
        self._note(one_line(text), end="\n")
        if again:
            self.prompt()

    def new_line(self) -> None:
        """Leave the prompt's line."""
        if self._at_prompt:
            self._at_prompt = False
            self._note("", end="\n")

    def json(self, text: str) -> None:
        """Print the result for a program."""
        self.end_of_text()
        print(text, flush=True)

    def _note(self, text: str, *, end: str) -> None:
        print(self._paint.dim(text), end=end, file=sys.stderr, flush=True)
