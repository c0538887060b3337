"""Sounds with which a caller says "go on", by language: they interrupt nobody.

    Call(…, backchannel=backchannels("en", "de"))

Only what is said for hardly anything else is listed. "Yes", "ja" and "はい" are: a caller who answers a question waits for
its end, and then it is an answer.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["BACKCHANNELS", "backchannels"]

_MOST: Final = 3
"""Such sounds in a row; more is a sentence."""

BACKCHANNELS: Final[dict[str, str]] = {
    "ar": "نعم, أيوه, ايوه, آه, اه, طيب, تمام, مم, همم",
    "de": "mhm, mh, mm, hm, hmm, äh, ähm, aha, ach, ach so, ah, oh, ja, jaja, jo, joa, jep, genau, klar, okay, ok, gut, alles klar, "
    "verstehe, soso",
    "en": "mhm, mm hm, mm, mmm, hm, hmm, uh, um, uh huh, uhhuh, ah, aha, oh, yeah, yea, yep, yup, yes, okay, ok, right, sure, gotcha, "
    "got it, alright, all right, i see",
    "es": "mhm, mm, hm, hmm, ajá, aja, ah, oh, eh, sí, si, ya, vale, claro, okay, ok, bueno, muy bien, entiendo",
    "fr": "mhm, mm, hm, hmm, euh, ah, oh, oui, ouais, ouaip, mouais, okay, ok, bien sûr, d accord, entendu, voilà, je vois",
    "it": "mhm, mm, hm, hmm, eh, ah, oh, sì, si, già, okay, ok, va bene, certo, esatto, capito",
    "ja": "はい, ええ, うん, うんうん, ふん, ふーん, へえ, へー, ほう, なるほど, そう, そうですか, そうですね, あー, ああ, おー",
    "ko": "네, 예, 응, 음, 으음, 아, 아하, 오, 그래, 그래요, 그렇군요, 맞아, 맞아요",
    "nl": "mhm, mm, hm, hmm, eh, ah, aha, oh, ja, jaja, jep, oké, oke, ok, goed, precies, juist, klopt, ik snap het",
    "pl": "mhm, mm, hm, hmm, aha, ach, oh, tak, dobra, dobrze, okej, okay, ok, jasne, rozumiem, właśnie",
    "pt": "mhm, mm, hm, hmm, aham, ah, oh, sim, pois, pois é, é, tá, tá bom, okay, ok, certo, claro, entendi, isso",
    "ru": "мгм, мм, хм, угу, ага, а, о, да, так, ладно, хорошо, понятно, ясно, окей",
    "tr": "hıhı, hmm, mhm, ah, oh, aha, evet, he, tamam, tabii, peki, anladım, okay",
    "zh": "嗯, 嗯嗯, 哦, 噢, 啊, 对, 对对, 好, 好的, 是, 是的, 行, 明白, 知道了",
}
"""Sounds of agreement, by language (ISO 639-1)."""


def backchannels(*languages: str) -> Callable[[str], bool]:
    """A predicate for ``Call(backchannel=…)``: whether a text consists of at most three such sounds.

    Args:
        *languages: Codes as in ``BACKCHANNELS``; all of them without any.

    Raises:
        ValueError: A language that is not listed.
    """
    unknown = sorted(set(languages) - BACKCHANNELS.keys())
    if unknown:
        listed = ", ".join(BACKCHANNELS)
        raise ValueError(f"no sounds of agreement are known for {', '.join(unknown)}; there are {listed}")
    sounds = frozenset[str]().union(*(_sounds(language) for language in languages or BACKCHANNELS))
    return lambda text: _consists_of(_words(text), sounds, _MOST)


@cache
def _sounds(language: str) -> frozenset[str]:
    return frozenset(_words(sound) for sound in BACKCHANNELS[language].split(","))


def _words(text: str) -> str:
    # Marks of any script separate: "Mm-hm." and 「はい、はい」 are two words.
    return " ".join("".join(letter if letter.isalnum() else " " for letter in text.casefold()).split())


def _consists_of(words: str, sounds: frozenset[str], most: int) -> bool:
    """Whether ``words`` are up to ``most`` sounds, one behind the other."""
    if words in sounds:
        return True
    split = [index for index, letter in enumerate(words) if letter == " "] if most > 1 else []
    return any(words[:at] in sounds and _consists_of(words[at + 1 :], sounds, most - 1) for at in split)
