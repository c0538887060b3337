"""The words with which a model begins a continuation that nobody needs to hear.

    said:  "We open at"                                  (heard by the caller)
    next:  "Sorry about that. We open at nine."   ──> " nine."

Asked to go on, some models first apologise, or say that they will, and then begin again. The seam filter
compares from the first word, so it finds no repetition there. This one knows such clauses (``lead_words``)
and looks for the seam right after each of them. Only a known lead-in with the seam right after it is cut.
Whatever else comes is said, lead-in included: in doubt a word is said twice, and never lost (docs/design.md D15).

The output is the same for every way of cutting the second text, except when ``flush`` is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from micdrop_agent.text.joining.lead_words import LEAD_INS, lead_state, whole_lead
from micdrop_agent.text.joining.seam import SeamFilter

if TYPE_CHECKING:
    from collections.abc import Mapping

    from micdrop_agent.text.joining.lead_words import LeadInWords

__all__ = ["LeadInFilter"]

_SENTENCE_ENDS: Final = frozenset(".!?:…\n\u3002\uff01\uff1f\uff1a")
_CLAUSE_ENDS: Final = _SENTENCE_ENDS | frozenset(";,-\u2013\u2014\u3001\uff0c\uff1b")

MAX_CHARS: Final = 160
"""Characters of a lead-in that are held back."""

LEAST_WORDS: Final = 2
"""Words that must be repeated after a lead-in: one alone may be meant."""

PATIENCE: Final = 3
"""Calls of ``flush`` without any new text, in a lead-in, that release nothing: there is nothing to hear yet."""

LEAST_PATIENCE: Final = 2
"""The same where a lead-in may only have begun: "I" is the beginning of "I apologize"."""

MOST_PATIENCE: Final = 10
"""Calls of ``flush`` in a lead-in, with new text between them, that release nothing."""


@attrs.define(eq=False)
class _Probe:
    """A seam that is looked for from the character ``start`` of the text."""

    seam: SeamFilter
    start: int
    certain: bool
    """It stands where a sentence begins, so that one word is enough."""
    spoken: str = ""


class LeadInFilter:
    """A ``SeamFilter`` that also looks behind a lead-in.

    Args:
        partial: The text that has been said.
        words: The lead-ins that are known, by language.
    """

    def __init__(self, partial: str, words: Mapping[str, LeadInWords] = LEAD_INS) -> None:
        self._partial = partial
        self._words = words
        self._held = ""
        self._clause = 0
        """Where the current clause begins."""
        self._leading = True
        """Whether everything so far is lead-ins, or may still become one."""
        self._probes = [_Probe(SeamFilter(partial), 0, certain=True)]
        self._waited = 0
        self._quiet = 0
        self._seam: SeamFilter | None = None
        self._passing = False
        """A lead-in is being spoken because it took too long; the seam may still come after it."""

    @property
    def is_open(self) -> bool:
        """Whether the seam has not been found or given up yet."""
        return self._seam is None or self._seam.is_open

    def feed(self, text: str) -> str:
        """Take the next chunk; return what may be spoken now (``""`` if nothing may)."""
        self._quiet = 0
        if self._seam is not None:
            return self._seam.feed(text)
        if self._passing:
            return self._pass(text)
        for position, char in enumerate(text, 1):
            spoken = self._take(char)
            if spoken or self._decided():
                return spoken + (self.feed(text[position:]) if position < len(text) else "")
        return ""

    def _decided(self) -> bool:
        return self._seam is not None

    def finish(self) -> str:
        """End the continuation; return what is still held."""
        if self._seam is not None:
            return self._seam.finish()
        if self._passing:
            return ""
        for probe in self._probes:
            probe.spoken += probe.seam.finish()
        found = next(filter(self._fits, self._probes), self._probes[0])
        self._seam = found.seam
        return found.spoken

    def flush(self) -> str:
        """Decide with what is there, because waiting longer would be heard; a lead-in is worth some patience."""
        if self._seam is not None:
            return self._seam.flush()
        if not self._held or self._passing:
            return ""
        self._waited += 1
        self._quiet += 1
        waits = len(self._probes) > 1 or (self._leading and self._in_lead_in())
        patience = PATIENCE if waits else LEAST_PATIENCE if self._may_lead() else 0
        if self._quiet <= patience and self._waited <= MOST_PATIENCE:
            return ""
        return self._speak_lead_in() if waits else self._choose(self._probes[0]) + self.flush()

    def _in_lead_in(self) -> bool:
        """Whether what has come of this clause is a lead-in as it stands, or was one before its last word."""
        clause = self._held[self._clause :]
        return whole_lead(clause, self._words) or whole_lead(clause[: _last_word(clause)], self._words)

    def _may_lead(self) -> bool:
        clause = self._held[self._clause :]
        return self._leading and bool(clause.strip()) and lead_state(clause, self._words) == "maybe"

    # -- one character

    def _take(self, char: str) -> str:
        self._held += char
        for probe in self._probes:
            probe.spoken += probe.seam.feed(char)
        first = self._probes[0]
        if not first.seam.is_open and first.seam.matched:
            return self._choose(first)
        later = self._probes[1:]
        found = next((probe for probe in later if not probe.seam.is_open and self._fits(probe)), None)
        if found is not None:
            return self._choose(found)
        if self._leading:
            self._look(char)
        undecided = any(probe.seam.is_open for probe in self._probes[1:])
        # No lead-in that the seam follows: everything is said, as the plain seam has it.
        return "" if self._leading or undecided else self._choose(first)

    def _look(self, char: str) -> None:
        """Whether the clause is, or may become, a lead-in; a seam is looked for after each one."""
        clause = self._held[self._clause :]
        if char in _CLAUSE_ENDS:
            if whole_lead(clause, self._words):
                self._probe(len(self._held), certain=char in _SENTENCE_ENDS)
                self._clause = len(self._held)
            else:
                self._leading = not clause.strip(" \t\"'*_#" + char)
        elif lead_state(clause, self._words) == "no":
            self._leading = False
            start = len(self._held) - len(clause) + _last_word(clause)
            if whole_lead(self._held[self._clause : start], self._words):
                # The rest follows without a mark: "Sorry about that we open …".
                self._probe(start, certain=False)
        if len(self._held) >= MAX_CHARS:
            self._leading = False

    def _probe(self, start: int, *, certain: bool) -> None:
        probe = _Probe(SeamFilter(self._partial), start, certain=certain)
        probe.spoken = probe.seam.feed(self._held[start:])
        self._probes.append(probe)

    def _fits(self, probe: _Probe) -> bool:
        """Whether the seam stands where ``probe`` looked for it."""
        seam = probe.seam
        if probe.start == 0:
            return seam.matched > 0
        said = seam.said_words
        return seam.matched >= LEAST_WORDS or (said == seam.matched == 1 and probe.certain)

    def _choose(self, probe: _Probe) -> str:
        self._seam, self._probes = probe.seam, [probe]
        return probe.spoken

    # -- when it takes too long

    def _speak_lead_in(self) -> str:
        """Say the lead-in after all, and go on to look for the seam after it."""
        start = self._probes[-1].start
        if start:
            lead, rest = self._held[:start], self._held[start:]
            self._seam = SeamFilter(self._partial, before=lead)
            return _joined(self._partial, lead) + self._seam.feed(rest) + self._seam.flush()
        self._passing = True
        return _joined(self._partial, self._held)

    def _pass(self, text: str) -> str:
        """Say the rest of the lead-in's clause; the seam may come after it."""
        end = next((index for index, char in enumerate(text, 1) if char in _CLAUSE_ENDS), None)
        self._held += text[:end]
        if end is None:
            return text
        self._seam = SeamFilter(self._partial, before=self._held)
        return text[:end] + self._seam.feed(text[end:])


def _joined(partial: str, text: str) -> str:
    seam = SeamFilter(partial)
    return seam.feed(text) + seam.finish()


def _last_word(clause: str) -> int:
    """Where the last word of ``clause`` begins, which is not complete."""
    return max(clause.rfind(" "), clause.rfind("\t"), clause.rfind("\n")) + 1
