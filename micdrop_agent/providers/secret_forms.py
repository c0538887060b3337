"""A key in the forms in which servers, proxies and clients repeat it; no I/O.

As it is, in other letters, percent-encoded, in JSON, HTML or Base64, broken over lines, and the first half of it
where a limit has cut it. Pinned in tests/test_provider_secrets.py.
"""

from __future__ import annotations

import base64
import html
import json
import re
from functools import lru_cache
from typing import Final
from urllib.parse import quote, quote_plus

__all__ = ["hide_forms", "shows_form"]

_LEAST: Final = 6
"""Shortest key that is looked for: a local server's is often one letter or "none", which would blot out half a message."""

_LEAST_PART: Final = 8
"""Shortest beginning of one."""


def hide_forms(text: str, secret: str | None) -> str:
    """``text`` without ``secret``, in whatever form."""
    return text if secret is None or len(secret) < _LEAST else _pattern_of(secret).sub("***", text)


def shows_form(text: str, secret: str | None) -> bool:
    """Whether ``text`` has ``secret`` in one of its forms."""
    return secret is not None and len(secret) >= _LEAST and _pattern_of(secret).search(text) is not None


@lru_cache(maxsize=8)
def _pattern_of(secret: str) -> re.Pattern[str]:
    forms = {
        secret,
        quote(secret, safe=""),
        quote_plus(secret),
        json.dumps(secret)[1:-1],
        repr(secret)[1:-1],
        html.escape(secret),
        *_in_base64(secret.encode()),
    }
    return re.compile("|".join(_broken(form) for form in sorted(forms, key=len, reverse=True)), re.IGNORECASE)


def _in_base64(secret: bytes) -> set[str]:
    """What does not depend on the letters around it, for each of the three places where it may begin."""
    found: set[str] = set()
    for skip, ahead in ((0, 0), (2, 1), (3, 2)):
        coded = base64.b64encode(b"\0" * ahead + secret).decode().rstrip("=")
        # The last sign before the padding depends on what follows.
        inner = coded[skip : len(coded) - (1 if (len(secret) + ahead) % 3 else 0)]
        found |= {inner, inner.replace("+", "-").replace("/", "_")}
    return {each for each in found if len(each) >= _LEAST_PART}


def _broken(form: str) -> str:
    """``form`` with blanks and backslashes anywhere, or its beginning alone."""
    least = max(min(_LEAST_PART, len(form)), len(form) // 2)
    signs = [re.escape(sign) for sign in form]
    spread = [r"[\s\\]*".join(some) for some in (signs, signs[:least])]
    return rf"{spread[0]}|{spread[1]}\S{{0,{len(signs)}}}"
