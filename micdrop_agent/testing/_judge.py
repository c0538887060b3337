"""Lets a model judge what another one said, where no text and no regular expression can.

    await judge(record, "offers another day", by=agent)

Each try is one answer of the judge, which is asked the same each time: under a cassette its tries are recorded as
answers to the same request, and are played in order.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Final

import attrs

from micdrop_agent.testing._course import quoted
from micdrop_agent.testing._talk import ExpectationError, Talk, talk

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from micdrop_agent._core.agent import Agent

__all__ = ["Verdict", "Vote", "judge"]

_VERDICT: Final = re.compile(r"\b(yes|no)\b", re.IGNORECASE)
_MARKUP: Final = re.compile(r"[*_`]")

_QUESTION: Final = """\
This is a part of a call between a caller and an agent:

{transcript}

Is it true of what the agent said and did: "{claim}"?
Begin with the one word "yes" or "no", then say why in one sentence."""


@attrs.frozen
class Vote:
    """One try of a judge.

    Args:
        agrees: Whether the judge said yes; ``None`` if it said neither yes nor no.
        words: All that it said.
    """

    agrees: bool | None
    words: str


@attrs.frozen
class Verdict:
    """What a judge decided.

    Args:
        claim: What was to be judged.
        votes: Each of its tries.
    """

    claim: str
    votes: Sequence[Vote]

    @property
    def agrees(self) -> bool:
        """Whether more than half of the tries said yes."""
        return 2 * sum(vote.agrees is True for vote in self.votes) > len(self.votes)


async def judge(record: Talk | Sequence[Talk], claim: str, *, by: Agent, tries: int = 3) -> Verdict:
    """Expect that ``claim`` is true of a record, or of several in a row, by the judgement of a model.

    The judge is asked ``tries`` times, each time as if for the first time: its conversation is as before afterwards.

    Args:
        record: What ``talk`` returned.
        claim: What should be true, for example ``"offers Friday"``.
        by: Any open agent that runs no answer; also the one that is tested.
        tries: An odd number; more than half of them decide.

    Raises:
        ExpectationError: Most tries did not say yes.
        ValueError: ``tries`` is not an odd number.
    """
    __tracebackhide__ = True
    if tries < 1 or tries % 2 == 0:
        raise ValueError(f"tries is an odd number, so that a majority decides, not {tries!r}")
    records = [record] if isinstance(record, Talk) else list(record)
    question = _QUESTION.format(transcript="\n".join(_transcript(records)), claim=claim)
    verdict = Verdict(claim, tuple([await _vote(by, question) for _ in range(tries)]))
    if not verdict.agrees:
        told = "\n".join(f"  {_word(vote)}: {' '.join(vote.words.split())}" for vote in verdict.votes)
        courses = "\n".join(one.course for one in records)
        raise ExpectationError(f"it should be true that it {quoted(claim)}; the judge said:\n{told}\n{courses}")
    return verdict


async def _vote(judge_: Agent, question: str) -> Vote:
    """One try, of which nothing is left in the judge's conversation.

    Raises:
        Exception: The judge could not answer; that says nothing about the claim.
    """
    before = list(judge_.conversation)
    try:
        said = await talk(judge_, question)
    finally:
        judge_.cancel()
        judge_.conversation.replace(before)
    if said.result.error is not None:
        raise said.result.error
    word = _VERDICT.search(_MARKUP.sub("", said.text))
    return Vote(None if word is None else word[1].lower() == "yes", said.text)


def _word(vote: Vote) -> str:
    return "neither yes nor no" if vote.agrees is None else "yes" if vote.agrees else "no"


def _transcript(records: Sequence[Talk]) -> Iterator[str]:
    for record in records:
        yield f"Caller: {record.prompt}"
        for use in record.calls:
            arguments, output = (json.dumps(value, ensure_ascii=False) for value in (use.arguments, use.output))
            yield f"(The agent used the tool {use.name} with {arguments}; it returned {output})"
        yield f"Agent: {record.text or '(said nothing)'}"
