"""The narration filter: a tool call that the model writes as text is not spoken.

    chunk ──> feed ──> spoken text                    written: calls to run
                ├── <tool_call>…</tool_call>: taken out, read at its end
                ├── {"name": …}, name({…}): the same, when it names a tool on offer
                └── name(…): waits for the end, which says whether it was a call

Some servers leave the markup of a call in the text, beside the real call or instead of it, and some
models write ``get_weather({"city": "Oslo"})`` as a comment. What stands between the marks of a call
is never spoken. A text that is only like a call waits until the response ends: if the call came, it
is dropped, else it is spoken. Words around it are spoken at once; only what follows a text that
waits, waits with it, so that the order of the text stays.

Guarantees, each one pinned in tests/test_text_narration.py:

1. The output is the same for every way of cutting the text.
2. Text that has nothing of a call is spoken unchanged, and at once: at most the beginning of a mark,
   or of a tool's name, waits.
3. A call is handed over once, complete, and only when no structured call came beside it (D18).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from micdrop_agent.text.blocks import BLOCKS, CALL_MARKS, Block
from micdrop_agent.text.braces import BraceScanner
from micdrop_agent.text.guesses import BLANKS, TAIL, TAIL_LENGTH, Guess, call_of, joined, start_pattern
from micdrop_agent.text.written import WrittenCall, calls_in, stated_name

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

__all__ = ["NarrationFilter"]

_AFTER_A_CALL: Final = " \t\r\n])}>;,`"
_AFTER: Final = re.compile(r"\s*[\],;]?\s*(?:```|[\])])?")
"""What stands after a call in a fence or a list."""

_NO_BEGINNINGS: Final[frozenset[str]] = frozenset()
_AFTER_BEGUN: Final = re.compile(r"\s*[\],;]?\s*`{0,3}\Z")


class NarrationFilter:
    """Lets the words of one response through and takes the calls out of them.

    Args:
        tools: Names of the tools on offer, each with its parameters' schema (by which values that
            came as bare text are read) or ``None``.
    """

    __slots__ = (
        "_after_fence",
        "_before",
        "_beginnings",
        "_block",
        "_declared",
        "_guess",
        "_held",
        "_last",
        "_longest",
        "_queue",
        "_start",
        "_trim",
        "dropped",
        "written",
    )

    written: list[WrittenCall]
    """Complete calls that came as text and not as a call; final after ``finish``."""

    dropped: list[str]
    """What was taken out and is not a call that could be run, in words for a log."""

    def __init__(self, tools: Mapping[str, Mapping[str, Any] | None]) -> None:
        self.written = []
        self.dropped = []
        self._declared = tools
        names = sorted(self._declared, key=len, reverse=True)
        self._longest = len(names[0]) if names else 0
        # Looked up for the last word of every chunk, so made once.
        self._beginnings = (
            frozenset(name[:end] for name in names for end in range(1, len(name) + 1)) if names else _NO_BEGINNINGS
        )
        self._start = start_pattern(names)
        self._held = ""
        self._before = ""
        self._last = ""
        self._trim = False
        self._after_fence = False
        self._block: Block | None = None
        self._guess: Guess | None = None
        self._queue: list[str | Guess] = []

    def _busy(self) -> bool:
        waiting = self._held or self._trim or self._after_fence or self._queue
        return bool(waiting) or self._block is not None or self._guess is not None

    def feed(self, text: str) -> str:
        """Take the next chunk; return what may be spoken now (``""`` if nothing may)."""
        # Every chunk of every answer comes here: nothing but these tests when nothing is odd.
        if "<" in text or "{" in text or "(" in text or "[" in text or "`" in text or self._busy():
            return self._look(text) if text else ""
        cut = self._hold_word(text) if self._beginnings else len(text)
        if cut == len(text):
            if text:
                self._before = self._last = text[-1]
            return text
        self._held = text[cut:]
        return self._say(text[:cut])

    def finish(self, *, called: Collection[str] = ()) -> str:
        """End the response; return the held text without the calls.

        Args:
            called: Names of the tools that were called in this response. If there are any, calls
                that came as text are the same ones once more, or a guess: none of them is run.
        """
        spoken = [self._end_of_block()]
        if self._guess is not None:
            spoken.append(self._end_guess(self._guess, whole=False))
        if self._held and not self._after_fence:
            held, self._held = self._held, ""
            spoken.append(self._say(held))
        self._held = ""
        spoken.append(self._end_of_queue(called))
        if called:
            self.dropped += [f"a call of {call.name} as text" for call in self.written if call.name not in called]
            self.written.clear()
        return "".join(spoken)

    # -- one piece

    def _look(self, text: str) -> str:
        text = self._held + text
        self._held = ""
        spoken: list[str] = []
        while text:
            if self._block is not None:
                part, text = self._in_block(self._block, text)
            elif self._guess is not None:
                part, text = self._in_guess(self._guess, text)
            elif self._after_fence:
                part, text = self._skip_after(text)
            else:
                part, text = self._in_text(text)
            spoken.append(part)
        return "".join(spoken)

    def _in_text(self, text: str) -> tuple[str, str]:
        """Up to the first mark or call of ``text``, and what is left."""
        mark = CALL_MARKS.pattern.search(text)
        # The character before decides whether a name begins here or goes on.
        guess = None if self._start is None else self._start.search(self._before + text, len(self._before))
        start = len(text) if guess is None else guess.start() - len(self._before)
        if mark is not None and mark.start() <= start:
            spoken = self._say(text[: mark.start()])
            closer = BLOCKS.get(mark.group().lower())
            if closer is not None:
                self._block = Block(mark.group(), closer)
            else:
                self._trim_next()  # the end of a block whose beginning never came
            return spoken, text[mark.end() :]
        if guess is None:
            cut = self._hold_from(text)
            self._held = text[cut:]
            return self._say(text[:cut]), ""
        bracket = (guess.end() - 1 if guess["name"] else guess.start("brace")) - len(self._before)
        spoken = self._say(text[:start])
        fenced = bool(guess["fence"] or guess["list"])
        self._guess = Guess(guess["name"], BraceScanner(text[bracket]), fenced, [text[start:bracket]])
        return spoken, text[bracket:]

    def _say(self, text: str) -> str:
        if self._trim:
            text = text.lstrip()
        if not text:
            return ""
        self._trim = False
        self._before = text[-1]
        if self._queue:
            self._queue.append(text)
            return ""
        self._last = text[-1]
        return text

    def _trim_next(self) -> None:
        """A call stood here: the white space before and after it must not add up."""
        self._trim = not self._last or self._last.isspace()

    # -- between marks

    def _in_block(self, block: Block, text: str) -> tuple[str, str]:
        end = block.end_in(text)
        if end is not None:
            self._block = None
            self._read(block, closed=True)
            self._trim_next()
            return "", text[end:]
        if not block.is_prose:
            return "", ""
        self._block = None
        self._trim_next()
        return "", block.body

    def _read(self, block: Block, *, closed: bool) -> int:
        """Take the calls of a block; where in its text the last of them ends."""
        calls, end = calls_in(block.text, self._declared, closed=closed)
        self.written += calls
        if not calls:
            self.dropped.append("the markup of a tool call that is incomplete, or of an unknown tool")
        return end

    def _end_of_block(self) -> str:
        block, self._block = self._block, None
        if block is None:
            return ""
        if not block.certain and len(block.body.split()) > 1:
            return self._say(block.body)
        end = self._read(block, closed=False)
        rest = block.text[end:].lstrip(_AFTER_A_CALL) if end else ""
        if not rest or block.closer.startswith(rest.lower()) or rest.startswith("</"):
            return ""
        # Words after a mark that has no end: what else is in them is treated as before.
        self._trim_next()
        return self._look(rest) + self._end_of_block()

    # -- what is like a call

    def _in_guess(self, guess: Guess, text: str) -> tuple[str, str]:
        end = guess.scanner.end_in(text)
        guess.pieces.append(text[:end])
        if end is None:
            return "", ""
        return self._end_guess(guess, whole=True), text[end:]

    def _end_guess(self, guess: Guess, *, whole: bool) -> str:
        self._guess = None
        call = call_of(guess, self._declared) if whole else None
        if call is not None:
            self.written.append(call)
            self._before = ""
            self._after_fence = guess.fenced
            self._trim_next()
            return ""
        name = guess.name or stated_name(guess.text)
        if name not in self._declared:
            return self._say(guess.text)  # an object that calls nothing of ours is text like any other
        if not whole and (guess.name is None or '"' in guess.text):
            self.dropped.append(f"half of a call of {name}")
            return ""
        guess.name = name
        self._before = guess.pieces[-1][-1:]
        self._queue.append(guess)
        return ""

    def _skip_after(self, text: str) -> tuple[str, str]:
        """Drop the end of a fence or list after a call in it."""
        if _AFTER_BEGUN.fullmatch(text):
            self._held = text
            return "", ""
        self._after_fence = False
        match = _AFTER.match(text)
        self._trim_next()
        return "", text[match.end() if match else 0 :]

    def _end_of_queue(self, called: Collection[str]) -> str:
        spoken: list[str] = []
        dropped = False
        for part in joined(self._queue):
            text = part if isinstance(part, str) else part.text
            if isinstance(part, Guess) and part.name in called:
                dropped = True
                continue
            if dropped and (not self._last or self._last.isspace()):
                text = text.lstrip()
            if text:
                dropped, self._last = False, text[-1]
                spoken.append(text)
        self._queue.clear()
        return "".join(spoken)

    # -- what waits

    def _hold_from(self, text: str) -> int:
        """Index from which the end of ``text`` may be the beginning of a call."""
        cut = CALL_MARKS.hold_from(text)
        if not self._beginnings:
            return cut
        cut = min(cut, self._hold_word(text))
        # A fence or list may stand before the word or mark that waits.
        tail = TAIL.search(text, max(0, cut - TAIL_LENGTH), cut)
        return cut if tail is None else tail.start()

    def _hold_word(self, text: str) -> int:
        length = len(text)
        bare = text.rstrip() if text[-1:].isspace() else text
        word = bare.rpartition(" ")[2]
        known = self._beginnings if bare is text else self._declared
        # Most chunks are one plain word, and that is none of ours: no need to go through its letters.
        if word not in known and word.isalnum():
            return length
        end = len(bare)
        if length - end > BLANKS or end == 0:
            return length
        start = end
        while start > 0 and end - start <= self._longest and _in_name(text[start - 1]):
            start -= 1
        if start == end or (start == 0 and self._before and _in_name(self._before)):
            return length
        return start if text[start:end] in known else length


def _in_name(char: str) -> bool:
    return char.isalnum() or char in "_-"
