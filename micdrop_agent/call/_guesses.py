"""Answers that are begun before the transcript is final; only with the option ``speculate``.

    StopSpeaking, with a partial text so far ─┐
    a partial text after StopSpeaking ────────┴▶ agent.speculate() ──▶ final text: adopted, or dropped for an ordinary answer

While the caller still speaks nothing is guessed: every further word would make the guess wrong.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from micdrop_agent.messages import is_blank

if TYPE_CHECKING:
    from micdrop_agent._core.answer import Answer
    from micdrop_agent._core.guess import Guess
    from micdrop_agent.call._session import Session

__all__ = ["Guesses"]


class Guesses:
    """The guess of one call."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._active = session.options.speculate and session.agent is not None
        self._guess: Guess | None = None
        self._heard = ""

    def partial(self, text: str, *, stopped: bool) -> None:
        """``text`` was understood so far; the caller has stopped, or has not."""
        self._heard = text
        if stopped:
            self.stopped()

    def stopped(self) -> None:
        """The caller has stopped: what was understood so far is probably all."""
        text, agent = self._heard, self._session.agent
        guess = self._guess
        if not self._active or agent is None or is_blank(text):
            return
        if guess is not None and guess.alive and guess.fits(text):
            return
        try:
            self._guess = agent.speculate(text)
        except RuntimeError:  # closed by the application, which the answer itself will tell
            self._guess = None

    def final(self, text: str) -> Answer | None:
        """The text is final: the answer to it that has begun already, with ``text`` in the conversation; ``None`` if there is none."""
        guess, self._guess, self._heard = self._guess, None, ""
        if guess is None or not guess.alive:
            return None
        self._session.mouth.cut()  # as before every answer; if that changes the conversation, the guess is over
        return guess.adopt(text)

    def drop(self) -> None:
        """The caller goes on, or nothing is answered."""
        guess, self._guess, self._heard = self._guess, None, ""
        if guess is not None:
            guess.discard()
