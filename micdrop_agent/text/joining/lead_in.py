"""The words with which a model begins a continuation that nobody needs to hear.

    said:  "We open at"                                  (heard by the caller)
    next:  "Sorry about that. We open at nine."   ──> " nine."

Asked to go on, some models first apologise, or say that they will, and then begin again. The seam filter
compares from the first word, so it finds no repetition there. This one knows such beginnings. Behind one of
them it looks for the seam anew at each clause, and what stands before the seam is dropped. If no seam is
found the text is joined as it came.

The output is the same for every way of cutting the second text, except when ``flush`` is used.
"""

from __future__ import annotations

import re
from typing import Final

import attrs

from micdrop_agent.text.joining.joint import is_unspaced
from micdrop_agent.text.joining.seam import SeamFilter

__all__ = ["LeadInFilter"]

_PHRASES: Final = tuple(
    phrase.strip()
    for phrase in """
    sorry | so sorry | i'm sorry | i am sorry | we're sorry | apolog | my apolog | i apolog | we apolog | pardon | excuse me
    sure | certainly | of course | okay | ok | alright | all right | right | absolutely | got it | understood | no problem
    as i was saying | as i said | where was i | where were we | to continue | continuing | i'll continue | let me continue
    let me repeat | let me start | let me try | to repeat | again | picking up | here is the | here's the
    désolé | pardon | excusez | toutes mes excuses | je m'excuse | je continue | je reprends | bien sûr | d'accord | comme je disais
    entschuldig | verzeih | natürlich | tut mir leid | es tut mir leid | wie gesagt | gerne
    perdón | lo siento | disculp | claro | por supuesto | como decía | scus | mi scus | certo | desculp | como eu dizia
    すみません | 申し訳 | 失礼 | 抱歉 | 对不起 | 對不起 | 不好意思 | 죄송
    """.replace("\n", "|").split("|")
    if phrase.strip()
)
_STEMS: Final = ("apolog", "entschuldig", "verzeih", "disculp", "scus", "desculp", "excusez")
"""Ends of phrases that are beginnings of words."""

_CLAUSE_END: Final = frozenset(".!?:;,…\n-\u2013\u2014\u3002\u3001\uff0c\uff01\uff1f\uff1a\uff1b")
_BEFORE: Final = re.compile(r"^\W+")
_BLANKS: Final = re.compile(r"\s+")

MAX_CHARS: Final = 160
"""Characters that may be held back in search of the seam."""

LEAST_WORDS: Final = 2
"""Words that must be repeated: one alone may be meant."""

PATIENCE: Final = 3
"""Calls of ``flush`` that find a lead-in and still release nothing: there is nothing to hear yet."""


@attrs.define(eq=False)
class _Probe:
    seam: SeamFilter
    spoken: str = ""


class LeadInFilter:
    """A ``SeamFilter`` that also looks behind a lead-in.

    Args:
        partial: The text that has been said.
    """

    def __init__(self, partial: str) -> None:
        self._partial = partial
        self._held = ""
        self._led = False
        self._flushed = 0
        self._probes: list[_Probe] = []
        self._seam: SeamFilter | None = None

    @property
    def _open(self) -> bool:
        return self._seam is None or self._seam._open

    def feed(self, text: str) -> str:
        """Take the next chunk; return what may be spoken now (``""`` if nothing may)."""
        seam = self._seam
        if seam is not None:
            return seam.feed(text)
        for position, char in enumerate(text, 1):
            spoken = self._take(char)
            if self._seam is not None:
                return spoken + self._seam.feed(text[position:])
        return ""

    def finish(self) -> str:
        """End the continuation; return what is still held."""
        if self._seam is not None:
            return self._seam.finish()
        for probe in self._probes:
            probe.spoken += probe.seam.finish()
            if self._found(probe):
                return probe.spoken
        spoken = self._as_it_came()
        return spoken + self.finish()

    def flush(self) -> str:
        """Decide with what is there, because waiting longer would be heard; a lead-in is worth some patience."""
        if self._seam is not None:
            return self._seam.flush()
        self._flushed += 1
        if not self._held or (self._led and self._flushed <= PATIENCE):
            return ""
        spoken = self._as_it_came()
        return spoken + self.flush()

    def _take(self, char: str) -> str:
        self._held += char
        for probe in self._probes:
            probe.spoken += probe.seam.feed(char)
            if self._found(probe):
                return probe.spoken
        self._probes = [probe for probe in self._probes if probe.seam._open]
        if len(self._held) >= MAX_CHARS or not (self._led or self._may_lead()):
            return self._as_it_came()
        if self._led and char in _CLAUSE_END:
            self._probes.append(_Probe(SeamFilter(self._partial)))
        return ""

    def _may_lead(self) -> bool:
        """Whether the text begins, or may still begin, with a lead-in."""
        text = _BLANKS.sub(" ", _BEFORE.sub("", self._held.casefold())).replace("\u2019", "'")
        possible = False
        for phrase in _PHRASES:
            rest = text[len(phrase) :]
            if text.startswith(phrase) and (
                phrase.endswith(_STEMS) or is_unspaced(phrase[-1]) or not rest[:1].isalnum()
            ):
                self._led = self._led or bool(rest) or is_unspaced(phrase[-1])
                return True
            possible = possible or phrase.startswith(text)
        return possible

    def _found(self, probe: _Probe) -> bool:
        """Whether the seam is behind a repetition; it is the one then."""
        if probe.seam._open or probe.seam._matched < min(LEAST_WORDS, len(probe.seam._said)):
            return False
        self._seam, self._probes = probe.seam, []
        return True

    def _as_it_came(self) -> str:
        self._seam, self._probes = SeamFilter(self._partial), []
        return self._seam.feed(self._held)
