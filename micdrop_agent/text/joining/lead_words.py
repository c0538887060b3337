"""What models say before they go on, by language: apologies, assent, and that they continue. No I/O.

A clause is a lead-in when it begins with one of the ``heads`` and every other word of it is one of the
``tails``, or when it is one of those that stand ``alone``. So "Sorry about that." is one, and "Sorry, the pool is closed." is one only up to its comma.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, Literal

import attrs

from micdrop_agent.text.joining.joint import is_unspaced, is_word

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["LEAD_INS", "LeadInWords", "lead_state", "whole_lead"]

LeadState = Literal["no", "maybe", "lead"]


def _lines(text: str) -> tuple[str, ...]:
    return tuple(" ".join(part.split()) for part in text.split("|"))


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


@attrs.frozen
class LeadInWords:
    """The lead-ins of one language, in small letters with plain apostrophes.

    Args:
        heads: How a clause of this kind begins: one word or several.
        tails: The other words that such a clause may have.
        alone: Clauses of assent, which may have no other word: "Of course it was your mistake." says something.
    """

    heads: tuple[str, ...]
    tails: frozenset[str]
    alone: tuple[str, ...] = ()


LEAD_INS: Final[dict[str, LeadInWords]] = {
    "en": LeadInWords(
        _lines("""sorry|so sorry|very sorry|i'm sorry|i am sorry|i'm so sorry|we're sorry|we are sorry|oh sorry
        |my apologies|apologies|i apologize|i apologise|we apologize|apologizing|pardon|pardon me|excuse me
        |as i was saying|as i said|as i mentioned|where was i|where were we|to continue|continuing
        |i'll continue|i will continue|let me continue|let me repeat|let me start|let me try|let me pick up
        |to repeat|picking up|i was cut off|i got cut off|i was interrupted|we were interrupted
        |here is the rest|here is the continuation|here is the answer|here is the response
        |here is the message|here's the rest|here's the continuation|here's the answer|here's the response
        |here's the message|it seems i was cut|it seems i was interrupted|it looks like i was cut
        |it looks like i was interrupted|my previous message was cut|my previous message was interrupted
        |my last message was cut|my last message was interrupted|my previous response was cut
        |my previous response was interrupted|my last response was cut|my last response was interrupted
        |my previous answer was cut|my previous answer was interrupted|my last answer was cut
        |my last answer was interrupted|my last sentence was cut|my last sentence was interrupted"""),
        _words("""about that this it for the a an my your our any interruption interruptions interrupting disruption
            disruptions delay delays confusion inconvenience trouble glitch mistake cut cutoff cutting off being
            there again over from where i we left stopped was were continuation rest of response answer message
            sentence thing saying so continue continuing to what with me start begin beginning repeat try once more
            and please up right back just now before interrupted got go on let us in last previous reply text
            continued as"""),
        alone=_lines("sure|sure thing|certainly|of course|okay|ok|alright|all right|absolutely|got it|understood"),
    ),
    "fr": LeadInWords(
        _lines("""désolé|désolée|je suis désolé|je suis désolée|pardon|excusez-moi|excusez moi|toutes mes excuses
        |mes excuses|je m'excuse|je vous prie de m'excuser|je continue|je reprends|je poursuis
        |comme je disais|comme je le disais|je disais|voici la suite|où en étais-je|reprenons|continuons"""),
        _words("""pour de du la le les l' l ce cette ces cela ça a à interruption coupure attente gêne retard désagrément
            désagréments confusion dérangement encore donc là où je j' j m' m en étais suis arrêté arrêtée suite ma
            réponse phrase avoir été coupé coupée et vous plus"""),
        alone=_lines("bien sûr|d'accord|certainement|entendu|très bien"),
    ),
    "de": LeadInWords(
        _lines("""entschuldigung|entschuldige|entschuldigen sie|verzeihung|verzeihen sie|tut mir leid|es tut mir leid
        |wie gesagt|wie ich sagte|ich fahre fort|ich mache weiter|weiter geht's|hier ist die fortsetzung
        |wo war ich"""),
        _words("""für die das den der diese dieses diesen unterbrechung verzögerung störung verwirrung unannehmlichkeiten
            bitte noch einmal nochmal nochmals fort weiter wo ich war aufgehört habe stehengeblieben bin mit meiner
            antwort dass unterbrochen wurde und"""),
        alone=_lines("natürlich|gerne|gern|klar|okay|ok|in ordnung|selbstverständlich|sicher|also"),
    ),
    "es": LeadInWords(
        _lines("""perdón|perdone|perdona|disculpe|disculpa|disculpas|mis disculpas|lo siento|lo siento mucho
        |como decía|como le decía|continúo|sigo|sigamos|continuemos|aquí está la continuación|dónde estaba"""),
        _words("""por la el los las esto eso esta este interrupción demora retraso molestia molestias confusión corte
            inconveniente de nuevo otra vez donde me quedé quedamos lo dejé con mi respuesta frase y que le te haya
            sido cortado"""),
        alone=_lines("claro|claro que sí|por supuesto|de acuerdo|vale|muy bien|entendido|desde luego"),
    ),
    "it": LeadInWords(
        _lines("""scusa|scusi|scusate|mi scusi|mi scuso|chiedo scusa|mi dispiace|come dicevo|come le dicevo|continuo
        |riprendo|proseguo|ecco il seguito|dov'ero|dove ero rimasto"""),
        _words("""per l' l la il lo le i questo questa interruzione ritardo disagio attesa confusione problema
            inconveniente di nuovo ancora da dove ero rimasto mi ero fermato con mia risposta frase e allora"""),
        alone=_lines("certo|certamente|va bene|d'accordo|ok"),
    ),
    "pt": LeadInWords(
        _lines("""desculpe|desculpa|desculpem|me desculpe|peço desculpa|peço desculpas|perdão|lamento|sinto muito
        |como eu dizia|como dizia|como eu estava dizendo|continuando|vou continuar|onde eu estava"""),
        _words("""pela pelo pelas pelos por a o os as isso isto essa esta interrupção demora atraso transtorno incômodo
            confusão corte de novo novamente outra vez onde eu parei parei paramos com minha resposta frase e então"""),
        alone=_lines("claro|claro que sim|com certeza|certo|tudo bem|está bem|entendido"),
    ),
    "nl": LeadInWords(
        _lines("sorry|excuses|mijn excuses|het spijt me|pardon|zoals ik zei|ik ga verder|ik ga door"),
        _words("""voor de het die deze dat onderbreking vertraging verwarring storing ongemak waar ik was gebleven mijn
            antwoord nog een keer"""),
        alone=_lines("natuurlijk|zeker|oké|ok|prima"),
    ),
    "ko": LeadInWords(
        _lines(
            "죄송합니다|죄송해요|정말 죄송합니다|실례했습니다|미안합니다|미안해요|계속하겠습니다|이어서 말씀드리겠습니다|다시 말씀드리겠습니다"
        ),
        _words("""중단되어 끊겨서 끊어져서 잠시 다시 계속 이어서 하겠습니다 말씀드리겠습니다"""),
        alone=_lines("네|예|물론입니다|물론이죠|알겠습니다"),
    ),
    "ja": LeadInWords(
        _lines(
            "すみません|すいません|申し訳ありません|申し訳ございません|大変申し訳ありません|失礼しました|失礼いたしました|ごめんなさい|では続けます|それでは続けます|続けます|続きです|では|それでは"
        ),
        _words(
            """途中で 途切れて 途切れてしまい 中断して 中断してしまい 大変 本当に どうも でした 続き を お 話し します 申し訳ありません 申し訳ございません 失礼しました"""
        ),
        alone=_lines("はい|もちろんです|もちろん|承知しました|かしこまりました"),
    ),
    "zh": LeadInWords(
        _lines("抱歉|非常抱歉|很抱歉|对不起|對不起|不好意思|我继续|我繼續|继续|繼續|接着说|接著說|刚才|剛才"),
        _words(
            """刚才 剛才 被 打断 打斷 了 中断 中斷 的 让 讓 您 你 久等 我 我们 我們 继续 繼續 说 說 给 給 带来 帶來 不便 可以 接着 接著"""
        ),
        alone=_lines("好的|好|当然|當然|当然可以|當然可以|没问题|沒問題|明白了"),
    ),
}
"""The lead-ins that every agent knows. Add a language, or replace one, before the first answer."""

_MARKS: Final = re.compile(r"[^\w']+")


def lead_state(clause: str, words: Mapping[str, LeadInWords]) -> LeadState:
    """What the beginning of a clause is: a lead-in so far, perhaps the beginning of one, or neither."""
    said = _plain(clause)
    if not said:
        return "maybe"
    best: LeadState = "no"
    for language in words.values():
        for clause_alone in language.alone:
            if said.rstrip() == clause_alone:
                return "lead" if said.endswith(" ") or is_unspaced(said[-1]) else "maybe"
            best = "maybe" if best == "no" and clause_alone.startswith(said) else best
        for head in language.heads:
            state = _follows(said, head, language.tails)
            if state == "lead":
                return state
            best = state if best == "no" else best
    return best


def whole_lead(clause: str, words: Mapping[str, LeadInWords]) -> bool:
    """Whether a complete clause is a lead-in."""
    said = _plain(clause)
    return bool(said) and lead_state(f"{said} ", words) == "lead"


def _plain(clause: str) -> str:
    """``clause`` in small letters, its words with one blank between them; a blank after the last complete one."""
    folded = clause.casefold().replace("\u2019", "'")
    return _MARKS.sub(" ", folded).lstrip()


def _follows(said: str, head: str, tails: frozenset[str]) -> LeadState:
    if len(said) <= len(head):
        return "maybe" if head.startswith(said) else "no"
    if not said.startswith(head):
        return "no"
    rest = said[len(head) :]
    if is_unspaced(head[-1]):
        return _pieces(rest.replace(" ", ""), tails)
    if is_word(rest[0]):
        return "no"  # "okay" is not the beginning of "okayama"
    *complete, last = rest.lstrip().split(" ")
    if not all(_is_tail(word, tails) for word in complete):
        return "no"
    if not last:
        return "lead"
    elided, mark, rest = last.rpartition("'")
    if mark and f"{elided}'" not in tails:
        rest = last
    return "maybe" if any(tail.startswith(rest) for tail in tails) else "no"


def _is_tail(word: str, tails: frozenset[str]) -> bool:
    """Whether ``word`` is one of the tails, or two of them where the first has lost its end (``l'attente``)."""
    elided, _, rest = word.rpartition("'")
    return word in tails or (f"{elided}'" in tails and rest in tails)


def _pieces(rest: str, tails: frozenset[str]) -> LeadState:
    """As above for scripts without blanks: ``rest`` has to be made of tails."""
    while rest:
        piece = max((tail for tail in tails if rest.startswith(tail)), key=len, default="")
        if not piece:
            return "maybe" if any(tail.startswith(rest) for tail in tails) else "no"
        rest = rest[len(piece) :]
    return "lead"
