"""Marks inside a line: where each ends, without any state. Each function answers ``None`` while more text is needed."""

from __future__ import annotations

import re
from typing import Final, Literal, NamedTuple

__all__ = [
    "EMOJI",
    "LONGEST_ADDRESS",
    "Found",
    "Nothing",
    "address",
    "bracketed",
    "entity",
    "find_link",
    "is_emoji",
    "tag",
]


class Found(NamedTuple):
    """A mark at the beginning of the text."""

    size: int
    """Characters of the original text that it takes."""
    spoken: str
    """What is said for it."""
    inner: int = 0
    """Where in the mark the text stands that is read like any other; ``spoken`` is not used then."""
    inner_size: int = 0


Nothing = Literal[False]
"""The text begins with no such mark, whatever comes."""

LONGEST_ADDRESS: Final = 2000
_LONGEST_NAME: Final = 64
_LONGEST_TEXT: Final = 400
"""Characters of a link's text; what is longer was not a link."""

EMOJI: Final = (
    "\u203c\u2049\u20e3\u231a\u231b\u23e9-\u23fa\u24c2\u25aa\u25ab\u25b6\u25c0\u25fb-\u25fe\u2600-\u27bf\u2934\u2935"
    "\u2b05-\u2b55\u3030\u303d\u3297\u3299\ufe0e\ufe0f\U0001f000-\U0001faff\U000e0020-\U000e007f"
)
_EMOJI: Final = re.compile(f"[{EMOJI}]")

_HOST: Final = re.compile(r"(?:[A-Za-z][\w+.-]*://)?(?:[^/@\s]*@)?(?:www\.)?([^/?#:\s]+)", re.IGNORECASE)
_ADDRESS_CHARS: Final = re.compile(r"[!#-;=?-_a-z~]*")
"""ASCII without white space, quotation marks, angle brackets, backticks, braces and bars."""

_TAGS: Final = frozenset(
    [
        "a",
        "abbr",
        "address",
        "article",
        "aside",
        "audio",
        "b",
        "big",
        "blockquote",
        "body",
        "br",
        "button",
        "caption",
        "center",
        "cite",
        "code",
        "col",
        "dd",
        "del",
        "details",
        "dfn",
        "div",
        "dl",
        "dt",
        "em",
        "figcaption",
        "figure",
        "font",
        "footer",
        "form",
        "h1",
        "h2",
        "h3",
        "h4",
        "h5",
        "h6",
        "head",
        "header",
        "hr",
        "html",
        "i",
        "iframe",
        "img",
        "input",
        "ins",
        "kbd",
        "label",
        "li",
        "link",
        "main",
        "mark",
        "meta",
        "nav",
        "ol",
        "option",
        "p",
        "pre",
        "q",
        "s",
        "samp",
        "script",
        "section",
        "select",
        "small",
        "span",
        "strike",
        "strong",
        "style",
        "sub",
        "summary",
        "sup",
        "svg",
        "table",
        "tbody",
        "td",
        "textarea",
        "tfoot",
        "th",
        "thead",
        "time",
        "tr",
        "tt",
        "u",
        "ul",
        "var",
        "video",
    ]
)
_LINES: Final = frozenset(
    [
        "address",
        "article",
        "aside",
        "blockquote",
        "br",
        "dd",
        "div",
        "dl",
        "dt",
        "figure",
        "footer",
        "form",
        "h1",
        "h2",
        "h3",
        "h4",
        "h5",
        "h6",
        "header",
        "hr",
        "li",
        "main",
        "nav",
        "ol",
        "p",
        "pre",
        "section",
        "table",
        "tr",
        "ul",
    ]
)
_TAG_NAME: Final = re.compile(r"</?([A-Za-z][A-Za-z0-9]*)")
_ATTRIBUTES: Final = re.compile(
    r"(?:\s+[A-Za-z:@_][\w:.-]*\s*=\s*(?:\"[^\"]*\"|'[^']*'|[^\s\"'=<>`]+)"
    r"|\s+(?:disabled|checked|hidden|open|controls|async|defer|required|selected|readonly|muted|loop|autoplay))*\s*/?>"
)
_AUTOLINK: Final = re.compile(r"<((?:https?|ftp)://[^\s<>]*|[\w.+-]+@[\w.-]+|mailto:[^\s<>]+)>")
_ENTITIES: Final = {"&amp;": "&", "&lt;": "<", "&gt;": ">", "&quot;": '"', "&nbsp;": " ", "&#39;": "'", "&apos;": "'"}
_DESTINATION: Final = re.compile(r"\(\s*(?:<[^<>\n]*>|[^\s<][^\s]*)?(?:\s+(?:\"[^\"]*\"|'[^']*'|\([^()]*\)))?\s*\)")
_FOOTNOTE: Final = re.compile(r"\[(?:\^[^\]\s]+|\d{1,2})\]")
_SCHEMES: Final = ("https", "http", "ftp", "www")


def is_emoji(char: str) -> bool:
    """Whether ``char`` is an emoji, or a sign that makes one of the sign before it."""
    return char > "\u2000" and _EMOJI.match(char) is not None


def address(text: str, *, final: bool) -> Found | Nothing | None:
    """A raw address at the beginning: its host is said."""
    lead = text[:8].lower()
    scheme = next((scheme for scheme in _SCHEMES if lead.startswith(scheme)), None)
    if scheme is None:
        return None if not final and any(scheme.startswith(lead) for scheme in _SCHEMES) else False
    mark = "." if scheme == "www" else "://"
    rest = text[len(scheme) : len(scheme) + len(mark)].lower()
    if rest != mark:
        return None if mark.startswith(rest) and not final else False
    found = _ADDRESS_CHARS.match(text, 0, LONGEST_ADDRESS)
    end = found.end() if found else 0
    if end == len(text) and end < LONGEST_ADDRESS and not final:
        return None
    whole = _trimmed(text[:end])
    host = _HOST.match(whole)
    return Found(len(whole), host[1]) if host and len(whole) > len(scheme) + len(mark) else False


def _trimmed(whole: str) -> str:
    """An address without the marks behind it that belong to the sentence."""
    while whole and (whole[-1] in ".,;:!?*_~'" or _unopened(whole)):
        whole = whole[:-1]
    return whole


def _unopened(whole: str) -> bool:
    """Whether an address ends in a bracket that was opened before it."""
    opening = {")": "(", "]": "["}.get(whole[-1])
    return opening is not None and whole.count(whole[-1]) > whole.count(opening)


def tag(text: str, *, final: bool) -> Found | Nothing | None:
    """An HTML tag, a comment or an address in angle brackets."""
    if len(text) == 1:
        return False if final else None
    if text.startswith("<!--"[: len(text)]):
        return _until(text, "-->", LONGEST_ADDRESS, final=final)
    end = text.find(">", 0, LONGEST_ADDRESS)
    if end >= 0 and (link := _AUTOLINK.match(text)):
        host = _HOST.match(link[1])
        spoken = host[1] if host and "://" in link[1] else link[1].removeprefix("mailto:")
        return Found(link.end(), spoken)
    name = _TAG_NAME.match(text)
    if name is None:
        return None if text == "</" and not final else False
    if end >= 0:
        return _whole_tag(text[: end + 1], name)
    return None if not final and _may_be_tag(text, name) else False


def _whole_tag(text: str, name: re.Match[str]) -> Found | Nothing:
    if name[1].lower() not in _TAGS or "\n\n" in text or not _ATTRIBUTES.fullmatch(text, name.end()):
        return False
    return Found(len(text), "\n" if name[1].lower() in _LINES else "")


def _may_be_tag(text: str, name: re.Match[str]) -> bool:
    if len(text) >= LONGEST_ADDRESS or "<" in text[1:] or "\n\n" in text:
        return False
    if name.end() < len(text):
        in_link = re.match(r"<[\w.+:/-]+[^\s<>]*$", text) is not None
        return name[1].lower() in _TAGS or in_link
    return len(text) < _LONGEST_NAME


def _until(text: str, end: str, most: int, *, final: bool) -> Found | Nothing | None:
    place = text.find(end, 4, most)
    if place >= 0:
        return Found(place + len(end), "")
    return False if final or len(text) >= most else None


def entity(text: str, *, final: bool) -> Found | Nothing | None:
    """One of the few character references that models write."""
    for name, char in _ENTITIES.items():
        if text.startswith(name):
            return Found(len(name), char)
        if not final and name.startswith(text):
            return None
    return False


def bracketed(text: str, *, final: bool) -> Found | Nothing | None:
    """A source mark such as 【4†source】."""
    end = text.find("】", 0, 60)
    if end >= 0:
        return Found(end + 1, "") if "†" in text[:end] else False
    return False if final or len(text) >= 60 or "\n" in text else None  # noqa: PLR2004 - the same bound


def find_link(text: str, *, image: bool, final: bool) -> Found | Nothing | None:
    """A link, an image (without its ``!``) or a footnote mark that begins with ``[``."""
    close = _closing(text, "[", "]", _LONGEST_TEXT)
    if close is None:
        return False if final or len(text) >= _LONGEST_TEXT or "\n\n" in text else None
    if not image and (note := _FOOTNOTE.match(text)) and note.end() == close + 1:
        return _footnote(text, close, final=final)
    after = text[close + 1 : close + 2]
    if not after:
        return None if not final else False
    if after == "(":
        return _with_destination(text, close, final=final)
    if after == "[":
        end = _closing(text[close + 1 :], "[", "]", _LONGEST_TEXT)
        if end is None:
            hopeless = final or len(text) > close + _LONGEST_TEXT or "\n\n" in text[close:]
            return False if hopeless else None
        return False if text[close + 2 : close + 3] == "^" else Found(close + 2 + end, "", 1, close - 1)
    return False


def _footnote(text: str, close: int, *, final: bool) -> Found | Nothing | None:
    if text[1] == "^":
        return Found(close + 1, "")
    after = text[close + 1 : close + 2]
    if not after and not final:
        return None
    # "[1]" is a source mark, but "list[1](x)" is a link and "[1]x" may be anything.
    return False if after == "(" or after.isalnum() else Found(close + 1, "")


def _with_destination(text: str, close: int, *, final: bool) -> Found | Nothing | None:
    end = _closing(text[close + 1 :], "(", ")", LONGEST_ADDRESS)
    if end is None:
        return False if final or len(text) >= close + LONGEST_ADDRESS or "\n" in text[close + 1 :] else None
    whole = text[close + 1 : close + 2 + end]
    return Found(close + 2 + end, "", 1, close - 1) if _DESTINATION.fullmatch(whole) else False


def _closing(text: str, opening: str, closing: str, most: int) -> int | None:
    """Where the bracket closes that ``text`` begins with; None if it does not within ``most`` characters."""
    depth = 0
    for position, char in enumerate(text[:most]):
        if char == opening:
            depth += 1
        elif char == closing:
            depth -= 1
            if depth == 0:
                return position
        elif char == "\n" and (text[position + 1 : position + 2] == "\n" or opening == "("):
            return None
    return None
