"""What of a model's text is read aloud: its words, without the marks that are for the eye.

    **Hello!** See [the menu](https://a.example/menu) 😀    ──▶    Hello! See the menu

Guarantees, each one pinned in tests/test_speech_speakable.py:

1. The spoken text is the same for every way of cutting the text.
2. Text is held back only while it may be part of a mark, and such a part is bounded.
3. ``original(n)`` grows with ``n``, and stays inside the text.
"""

# At its end stands a table of its own class's methods.
# pyright: reportPrivateUsage=false

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from micdrop_agent.speech import _blocks, _inline
from micdrop_agent.speech._emphasis import LONGEST_RUN, Emphasis, dunder
from micdrop_agent.speech._inline import EMOJI, Found
from micdrop_agent.speech._map import SpokenMap

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Speakable"]

_WORD: Final = re.compile(r"[^\W_]+")
_PLAIN: Final = re.compile(rf"[^\w\s*_~`!\[<&\\【†‡{EMOJI}\u200d]+|[^\S\n]+")
_LINE_MARKS: Final = frozenset("#>[-*+•‣▪●○◦=_`~|")
_ESCAPED: Final = frozenset("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~")
_LONGEST_INDENT: Final = 80
_LONGEST_TICKS: Final = 64


class Speakable:
    """Takes Markdown, HTML tags, addresses, emoji and footnote marks out of a text that comes in chunks.

    Emphasis, headings and quotations lose their marks, lists their bullets; links keep their words, images their
    alternative text, a raw address its host. ``__init__``, ``snake_case`` and ``2 * 3`` stay as they are.

    Args:
        code: What is said in place of a block of code; ``""`` leaves it out.
        table: What is said in place of a table; ``""`` leaves it out.
    """

    def __init__(self, *, code: str = "Code block.", table: str = "Table.") -> None:
        self._code = code
        self._table = table
        self._map = SpokenMap()
        self._emphasis = Emphasis()
        self._text = ""
        """What is not decided yet."""
        self._final = False
        self._out: list[str] = []
        self._before = ""
        """The character of the original text before what is held."""
        self._said = ""
        """The last character that was spoken."""
        self._line_start = True
        self._fence = ""
        self._in_table = False
        self._ticks = 0
        self._eat_space = False

    def feed(self, text: str) -> str:
        """Take the next chunk; return what may be spoken now (``""`` if nothing may)."""
        self._text += text
        return self._run()

    def finish(self) -> str:
        """End the text; return what is released at its end."""
        self._final = True
        return self._run()

    def original(self, spoken: int) -> int:
        """How many characters of the original text the first ``spoken`` characters of the spoken one stand for."""
        if self._final and spoken >= self._map.spoken:
            return self._map.original
        return self._map.at(spoken)

    @property
    def spoken(self) -> int:
        """How many characters were spoken so far."""
        return self._map.spoken

    @property
    def held(self) -> str:
        """What came and is not decided yet."""
        return self._text

    def _run(self) -> str:
        while self._text and self._step():
            pass
        spoken = "".join(self._out)
        self._out.clear()
        return spoken

    def _step(self) -> bool:
        """Take one mark or one stretch of text; False if that needs more text."""
        if self._fence:
            return self._in_fence()
        if self._line_start:
            begun = self._begin_line()
            if begun is not None:
                return begun
        if self._ticks:
            return self._in_code()
        return self._inside_line()

    # ------------------------------------------------------------------ what text becomes

    def _say(self, size: int) -> bool:
        """Speak the next ``size`` characters as they are."""
        text, self._text = self._text[:size], self._text[size:]
        self._before = text[-1:] or self._before
        if self._eat_space:
            bare = text.lstrip(" \t\u00a0")
            self._map.drop(len(text) - len(bare), back=True)
            self._eat_space = not bare
            text = bare
        self._map.say(len(text))
        self._add(text)
        return True

    def _replace(self, size: int, spoken: str) -> bool:
        """Speak something else for the next ``size`` characters."""
        if spoken == "\n" and (not self._said or self._said == "\n"):
            spoken = ""
        self._before = self._text[size - 1]
        self._text = self._text[size:]
        self._eat_space = self._eat_space and not spoken
        self._map.replace(size, len(spoken))
        self._add(spoken)
        return True

    def _drop(self, size: int, *, back: bool = False, gap: bool = False, before: str | None = None) -> bool:
        """Speak nothing for the next ``size`` characters.

        Args:
            size: How many.
            back: Whether they belong to what was said before them.
            gap: Whether they leave two spaces where one belongs.
            before: What stands before the text now, for what looks back; the marks themselves if left out.
        """
        self._before = self._text[size - 1] if before is None else before
        self._text = self._text[size:]
        self._map.drop(size, back=back)
        if gap and (not self._said or self._said.isspace()):
            self._eat_space = True
        return True

    def _add(self, text: str) -> None:
        if text:
            self._out.append(text)
            self._said = text[-1]

    # ------------------------------------------------------------------ lines

    def _begin_line(self) -> bool | None:
        """Take what the line begins with; None if that is nothing but text."""
        indent = len(self._text) - len(self._text.lstrip(" \t"))
        if indent == len(self._text) and not self._final and indent < _LONGEST_INDENT:
            return False
        rest = self._text[indent:]
        if self._in_table and not rest.startswith("|"):
            self._in_table = False
        if indent >= _LONGEST_INDENT or rest[:1] not in _LINE_MARKS or not rest:
            self._line_start = False
            return None
        return self._line_mark(rest, indent)

    def _line_mark(self, rest: str, indent: int) -> bool | None:
        if rest[0] == "|":
            return self._table_line(rest, indent)
        for look in (_blocks.fence, _blocks.rule, _blocks.lead):
            found = look(rest, final=self._final)
            if found is None:
                return False
            if isinstance(found, _blocks.Fence):
                return self._open_fence(indent + found.size, found.mark)
            if isinstance(found, _blocks.Lead):
                return self._take_lead(indent, found)
        self._line_start = False
        return None

    def _open_fence(self, size: int, mark: str) -> bool:
        self._fence = mark
        ended = self._text[size - 1] == "\n"
        self._emphasis.reset()
        self._ticks = 0
        self._stand_in(size, self._code)
        self._line_start = ended
        return True

    def _stand_in(self, size: int, words: str) -> None:
        # A line of its own, so that it is not spoken as part of the sentence around it.
        self._replace(size, f"{words}\n" if words else "")

    def _take_lead(self, indent: int, found: _blocks.Lead) -> bool:
        size = indent + found.size
        if not found.whole_line:
            self._line_start = self._text[size - 1] == "\n" or self._text[indent] == ">"
            return self._drop(size, before="")
        end = self._text.find("\n", size)
        if end < 0 and not self._final and len(self._text) < size + _inline.LONGEST_ADDRESS:
            return False
        return self._drop(end + 1 if end >= 0 else len(self._text), before="")

    def _table_line(self, rest: str, indent: int) -> bool | None:
        if self._in_table:
            end = rest.find("\n", 0, _blocks.LONGEST_LINE)
            if end < 0 and not self._final and len(rest) < _blocks.LONGEST_LINE:
                return False
            return self._drop(indent + (end + 1 if end >= 0 else min(len(rest), _blocks.LONGEST_LINE)), back=True)
        found = _blocks.table(rest, final=self._final)
        if found is None:
            return False
        if not found:
            self._line_start = False
            return None
        self._in_table = True
        head_end = rest.index("\n")
        end = rest.find("\n", head_end + 1)
        self._stand_in(indent + (end + 1 if end >= 0 else len(rest)), self._table)
        return True

    def _in_fence(self) -> bool:
        """Drop code up to the line that closes it."""
        if not self._line_start:
            return self._drop_code()
        end = self._text.find("\n")
        line = self._text if end < 0 else self._text[:end]
        mark = line.strip(" \t")
        if mark.strip(self._fence[0]) or len(line) > _LONGEST_INDENT + len(self._fence):
            return self._drop_code()
        if end < 0 and not self._final:
            return False
        if len(mark) < len(self._fence):
            return self._drop_code()
        self._fence = ""
        return self._drop(len(line) + (end >= 0), back=True, before="")

    def _drop_code(self) -> bool:
        end = self._text.find("\n")
        self._line_start = end >= 0
        return self._drop(end + 1 if end >= 0 else len(self._text), back=True)

    # ------------------------------------------------------------------ inside a line

    def _in_code(self) -> bool:
        """Speak what stands between backticks as it is."""
        text = self._text
        start = text.find("`")
        line = text.find("\n")
        if line >= 0 and (start < 0 or line < start):
            return self._newline() if line == 0 else self._say(line)
        if start:
            return self._say(start if start > 0 else len(text))
        size = len(text) - len(text.lstrip("`"))
        if size == len(text) and not self._final and size < _LONGEST_TICKS:
            return False
        if size != self._ticks:
            return self._say(size)
        self._ticks = 0
        return self._drop(size, back=True)

    def _newline(self) -> bool:
        if self._before in {"\n", ""}:
            self._emphasis.reset()
            self._ticks = 0
        self._line_start = True
        return self._say(1)

    def _inside_line(self) -> bool:
        char = self._text[0]
        if char == "\n":
            return self._newline()
        if word := _WORD.match(self._text):
            return self._word(word.end())
        if plain := _PLAIN.match(self._text):
            return self._say(plain.end())
        handler = _HANDLERS.get(char)
        if handler is not None:
            return handler(self)
        if _inline.is_emoji(char):
            return self._drop(1, back=True, gap=True)
        # The joiner of emoji is a sign of its own in Hindi and other scripts.
        if char == "\u200d" and _inline.is_emoji(self._before):
            return self._drop(1, back=True)
        return self._say(1)

    def _word(self, size: int) -> bool:
        if self._text[0] in "hHwWfF" and not (self._before.isalnum() or self._before == "_"):
            found = _inline.address(self._text, final=self._final)
            if found is None:
                return False
            if found:
                return self._replace(found.size, found.spoken)
        return self._say(size)

    def _marks(self) -> bool:
        mark = self._text[0]
        size = min(LONGEST_RUN, len(self._text) - len(self._text.lstrip(mark)))
        if size == len(self._text) and not self._final and size < LONGEST_RUN:
            return False
        if mark == "_" and size == 2 and not self._before.isalnum():  # noqa: PLR2004 - __init__
            name = dunder(self._text, final=self._final)
            if name is None:
                return False
            if name:
                return self._say(name)
        role = self._emphasis.role(mark, size, self._before, self._text[size : size + 1])
        return self._say(size) if role == "text" else self._drop(size, back=role == "close", before=self._before)

    def _backticks(self) -> bool:
        size = len(self._text) - len(self._text.lstrip("`"))
        if size == len(self._text) and not self._final and size < _LONGEST_TICKS:
            return False
        self._ticks = size
        return self._drop(size)

    def _link(self) -> bool:
        return self._found(_inline.find_link(self._text, image=False, final=self._final), gap=True)

    def _image(self) -> bool:
        if len(self._text) == 1:
            return self._final and self._say(1)
        if self._text[1] != "[":
            return self._say(1)
        found = _inline.find_link(self._text[1:], image=True, final=self._final)
        if found:
            found = found._replace(size=found.size + 1, inner=found.inner + 1)
        return self._found(found, gap=True)

    def _tag(self) -> bool:
        return self._found(_inline.tag(self._text, final=self._final), gap=True)

    def _entity(self) -> bool:
        return self._found(_inline.entity(self._text, final=self._final), gap=False)

    def _source(self) -> bool:
        return self._found(_inline.bracketed(self._text, final=self._final), gap=True)

    def _dagger(self) -> bool:
        return self._drop(1, back=True) if self._before.strip() else self._say(1)

    def _escape(self) -> bool:
        if len(self._text) == 1:
            return self._final and self._say(1)
        if self._text[1] == "\n":
            return self._drop(1)  # a line break
        if self._text[1] not in _ESCAPED:
            return self._say(1)
        return self._replace(2, self._text[1])

    def _found(self, found: Found | _inline.Nothing | None, *, gap: bool) -> bool:
        """Do what was found of a mark; a text inside it is read like any other."""
        if found is None:
            return False
        if not found:
            return self._say(1)
        if found.inner:
            self._inner(found)
            return True
        if found.spoken:
            return self._replace(found.size, found.spoken)
        return self._drop(found.size, back=True, gap=gap, before=self._before)

    def _inner(self, found: Found) -> None:
        rest, final = self._text[found.size :], self._final
        behind = found.size - found.inner - found.inner_size
        said = self._map.spoken
        self._drop(found.inner, before="")
        tail = self._text[found.inner_size : found.inner_size + behind]
        self._text, self._final = self._text[: found.inner_size], True
        while self._text and self._step():
            pass
        self._text, self._final, self._line_start = tail + rest, final, False
        self._drop(behind, back=True, gap=self._map.spoken == said, before=self._said)


_HANDLERS: Final[dict[str, Callable[[Speakable], bool]]] = {
    "*": Speakable._marks,
    "_": Speakable._marks,
    "~": Speakable._marks,
    "`": Speakable._backticks,
    "[": Speakable._link,
    "!": Speakable._image,
    "<": Speakable._tag,
    "&": Speakable._entity,
    "\\": Speakable._escape,
    "【": Speakable._source,
    "†": Speakable._dagger,
    "‡": Speakable._dagger,
}
