"""Two thousand and more seams in eight languages: what was said, what a second model sends, what is to be heard.

Made from sentences and lead-ins by rule, so that it is the same in every run. Each sentence is cut in
several places; the second model then goes on in one of the ways that models were seen to use.
"""

from __future__ import annotations

import random
import unicodedata
from typing import TYPE_CHECKING, Final

import attrs

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Seam", "corpus", "words_of"]

SENTENCES: Final[dict[str, list[str]]] = {
    "en": [
        "We open at nine in the morning and close at six in the evening.",
        "Please take this medicine twice a day, after a meal, and never with alcohol.",
        "Your table for four is booked on Friday at half past seven, under the name of Miller.",
        "Yes, the pool is open today. The sauna, however, is closed until Monday.",
        "The next train to Boston leaves from platform twelve in about ten minutes.",
        "I have sent the invoice to your office. Is there anything else that you need?",
    ],
    "fr": [
        "Nous ouvrons à neuf heures du matin et nous fermons à dix-huit heures.",
        "Prenez ce médicament deux fois par jour, après le repas, et jamais avec de l'alcool.",
        "Votre table pour quatre est réservée vendredi à dix-neuf heures trente, au nom de Martin.",
        "Oui, la piscine est ouverte aujourd'hui. Le sauna, lui, reste fermé jusqu'à lundi.",
        "Le prochain train pour Lyon part de la voie douze dans une dizaine de minutes.",
        "J'ai envoyé la facture à votre bureau. Avez-vous besoin d'autre chose ?",
    ],
    "de": [
        "Wir öffnen um neun Uhr morgens und schließen um achtzehn Uhr.",
        "Nehmen Sie dieses Medikament zweimal täglich nach dem Essen und niemals mit Alkohol.",
        "Ihr Tisch für vier Personen ist am Freitag um halb acht auf den Namen Müller reserviert.",
        "Ja, das Schwimmbad ist heute geöffnet. Die Sauna bleibt allerdings bis Montag geschlossen.",
        "Der nächste Zug nach Hamburg fährt in etwa zehn Minuten von Gleis zwölf.",
        "Ich habe die Rechnung an Ihr Büro geschickt. Brauchen Sie sonst noch etwas?",
    ],
    "es": [
        "Abrimos a las nueve de la mañana y cerramos a las seis de la tarde.",
        "Tome este medicamento dos veces al día, después de comer, y nunca con alcohol.",
        "Su mesa para cuatro está reservada el viernes a las siete y media a nombre de García.",
        "Sí, la piscina está abierta hoy. La sauna, en cambio, está cerrada hasta el lunes.",
        "El próximo tren para Sevilla sale del andén doce en unos diez minutos.",
        "He enviado la factura a su oficina. ¿Necesita alguna otra cosa?",
    ],
    "it": [
        "Apriamo alle nove del mattino e chiudiamo alle sei di sera.",
        "Prenda questo medicinale due volte al giorno, dopo i pasti, e mai con alcolici.",
        "Il suo tavolo per quattro è prenotato venerdì alle sette e mezza a nome Rossi.",
        "Sì, la piscina è aperta oggi. La sauna, invece, resta chiusa fino a lunedì.",
        "Il prossimo treno per Torino parte dal binario dodici tra circa dieci minuti.",
        "Ho inviato la fattura al suo ufficio. Le serve qualcos'altro?",
    ],
    "pt": [
        "Abrimos às nove da manhã e fechamos às seis da tarde.",
        "Tome este remédio duas vezes ao dia, depois das refeições, e nunca com álcool.",
        "Sua mesa para quatro está reservada na sexta às sete e meia em nome de Silva.",
        "Sim, a piscina está aberta hoje. A sauna, porém, fica fechada até segunda.",
        "O próximo trem para Campinas parte da plataforma doze em cerca de dez minutos.",
        "Enviei a fatura para o seu escritório. Precisa de mais alguma coisa?",
    ],
    "ja": [
        "朝九時に開店し、夕方六時に閉店いたします。",
        "この薬は一日二回、食後に飲んでください。お酒と一緒に飲まないでください。",
        "金曜日の七時半に四名様のお席を田中様のお名前でご予約いたしました。",
        "本日プールは営業しております。サウナは月曜日まで休みです。",
        "次の大阪行きの電車は約十分後に十二番線から出ます。",
        "請求書は会社にお送りしました。ほかに必要なものはありますか。",
    ],
    "ko": [
        "저희는 아침 아홉 시에 열고 저녁 여섯 시에 닫습니다.",
        "이 약은 하루에 두 번 식사 후에 드시고 술과 함께 드시지 마세요.",
        "금요일 일곱 시 반에 네 분 자리를 김민수 님 이름으로 예약했습니다.",
        "오늘 수영장은 열려 있습니다. 사우나는 월요일까지 닫혀 있습니다.",
        "부산으로 가는 다음 기차는 약 십 분 뒤에 십이 번 승강장에서 출발합니다.",
        "청구서는 사무실로 보내 드렸습니다. 더 필요한 것이 있으신가요?",
    ],
}
LEADS: Final[dict[str, list[str]]] = {
    "en": [
        "Sorry about that. ",
        "I apologize for the interruption. ",
        "Of course! ",
        "As I was saying, ",
        "Okay. Let me continue. ",
    ],
    "fr": ["Désolé pour l'interruption. ", "Je vous prie de m'excuser. ", "Bien sûr ! ", "Comme je disais, "],
    "de": ["Entschuldigung für die Unterbrechung. ", "Es tut mir leid. ", "Natürlich! ", "Wie gesagt, "],
    "es": ["Perdón por la interrupción. ", "Lo siento. ", "¡Claro! ", "Como decía, "],
    "it": ["Mi scusi per l'interruzione. ", "Mi dispiace. ", "Certo! ", "Come dicevo, "],
    "pt": ["Desculpe pela interrupção. ", "Sinto muito. ", "Claro! ", "Como eu dizia, "],
    "ja": ["申し訳ありません。", "すみません、", "失礼しました。", "はい。"],
    "ko": ["죄송합니다. ", "네, 다시 말씀드리겠습니다. ", "물론입니다. "],
}


@attrs.frozen
class Seam:
    """One case.

    Args:
        language: Two letters.
        way: How the second model goes on.
        partial: What the caller has heard.
        reply: What the second model sends.
        new: What of ``reply`` was never said before; every word of it is to be heard.
        ideal: What the caller hears in all when nothing is lost or doubled; ``None`` where the reply neither
            restates nor continues.
    """

    language: str
    way: str
    partial: str
    reply: str
    new: str
    ideal: str | None


def corpus() -> Iterator[Seam]:
    """All cases, always in the same order."""
    dice = random.Random(20261201)
    for language, sentences in SENTENCES.items():
        for number, sentence in enumerate(sentences):
            other = sentences[(number + 1) % len(sentences)]
            for cut in _cuts(sentence, language, dice):
                yield from _ways(language, sentence, cut, other, dice)


def _cuts(sentence: str, language: str, dice: random.Random) -> list[int]:
    """Places to break off: between words, after a blank, and within a word."""
    if language == "ja":
        return sorted(dice.sample(range(2, len(sentence) - 3), 7))
    blanks = [index for index, char in enumerate(sentence) if char == " "]
    between = dice.sample(blanks[:-1], 4)
    within = [
        index for index in dice.sample(range(8, len(sentence) - 4), 12) if sentence[index - 2 : index + 2].isalpha()
    ]
    return sorted({*between, *(blank + 1 for blank in between[:2]), *within[:2]})


def _ways(language: str, sentence: str, cut: int, other: str, dice: random.Random) -> Iterator[Seam]:
    partial, rest = sentence[:cut], sentence[cut:]
    lead = dice.choice(LEADS[language])
    words = partial.split()
    yield Seam(language, "continues", partial, rest, rest, sentence)
    yield Seam(language, "restates", partial, sentence, rest, sentence)
    yield Seam(language, "apologizes and restates", partial, lead + sentence, rest, sentence)
    if language != "ja" and len(words) > 3 and partial[-1] == " ":
        yield Seam(language, "restates the end", partial, " ".join(words[-3:]) + " " + rest, rest, sentence)
    if language == "ja" or not partial[-1:].isalpha() or rest[:1] == " ":
        yield Seam(language, "apologizes and goes on", partial, lead + rest.lstrip(), rest, None)
        yield Seam(language, "says something else", partial, other, other, None)
    # As in the reports: the words of the seam come later, in a text that is new.
    tail = partial.strip(" ,.、。") if language == "ja" else (words[0].strip(",.") if words else "")
    yield Seam(
        language,
        "comes back to it later",
        words[0] if language != "ja" else partial[:2],
        f"{lead}{other} {tail}.",
        other,
        None,
    )


def words_of(text: str) -> list[str]:
    """Its words; in Japanese its characters."""
    words: list[str] = []
    word = ""
    for char in unicodedata.normalize("NFKC", text).casefold():
        spaced = not ("\u3040" <= char <= "\u30ff" or "\u4e00" <= char <= "\u9fff")
        if char.isalnum() and spaced:
            word += char
            continue
        if word:
            words.append(word)
            word = ""
        if char.isalnum():
            words.append(char)
    return [*words, word] if word else words
