"""CPU per token of ``micdrop_agent.speech``: sentences, Markdown, and both, in eight languages.

Tokens of four letters, as models send them. Beside it, in the same rounds, what one would write by hand with
sentencex alone: segment what has come of the sentence again at every token. No loop, no network.

    python benchmarks/speech.py --rounds 20

Goal: at most 20 µs a token for the sentences, and at most five times sentencex called at every token (which is
the lower bound: it cuts wrongly, but it does next to nothing in Python).
"""

from __future__ import annotations

import gc
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from _harness import Goals, Samples, arguments, quiet, tell

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from sentencex import segment
from speech_corpus import HARD, PLAIN

from micdrop_agent.speech import Sentences, Speakable, Speech

if TYPE_CHECKING:
    from collections.abc import Callable

TOKEN = 4
"""Letters of a token."""


def texts() -> list[tuple[str, list[str]]]:
    """Each paragraph of the corpus as tokens, with its language."""
    paragraphs = [
        (language, "".join(sentences))
        for corpus in (PLAIN, HARD)
        for language in corpus
        for sentences in corpus[language]
    ]
    return [(language, [text[at : at + TOKEN] for at in range(0, len(text), TOKEN)]) for language, text in paragraphs]


def by_hand(language: str, tokens: list[str]) -> None:
    """Segment at every token what has no end yet."""
    held = ""
    for token in tokens:
        held += token
        held = segment(language, held)[-1]


def sentences(language: str, tokens: list[str]) -> None:
    """``Sentences`` alone."""
    pieces = Sentences(language)
    for token in tokens:
        pieces.feed(token)
    pieces.finish()


def speakable(_language: str, tokens: list[str]) -> None:
    """``Speakable`` alone."""
    spoken = Speakable()
    for token in tokens:
        spoken.feed(token)
    spoken.finish()


def both(language: str, tokens: list[str]) -> None:
    """All of ``Speech``."""
    pieces = Speech(language=language).filter()
    for token in tokens:
        pieces.feed(token)
    pieces.finish()


WAYS: dict[str, Callable[[str, list[str]], None]] = {
    "sentencex_by_hand": by_hand,
    "sentences": sentences,
    "speakable": speakable,
    "speech": both,
}


def measure(rounds: int) -> Samples:
    """Everybody in turn, round by round."""
    samples = Samples()
    corpus = texts()
    count = sum(len(tokens) for _, tokens in corpus)
    with quiet():
        for number in range(rounds + 1):
            for name, way in WAYS.items():
                started = time.process_time()
                for language, tokens in corpus:
                    way(language, tokens)
                if number:  # the first round warms up
                    samples.add("token_us", name, (time.process_time() - started) * 1e6 / count)
            gc.collect(0)
    return samples


def main() -> None:
    """Measure, and print one line."""
    options = arguments(__doc__, rounds=20).parse_args()
    samples = measure(options.rounds)
    goals = Goals()
    goals.at_most("sentences us", samples.median("token_us", "sentences"), 20)
    goals.at_most("sentences / sentencex by hand", samples.paired("token_us", "sentences", "sentencex_by_hand"), 5)
    tell("speech", options.loop, samples, goals)


if __name__ == "__main__":
    main()
