"""A key that a server repeats, in any form, is in no error: not in its words, its code, its causes or its traceback."""

from __future__ import annotations

import base64
import html
import json
import traceback
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from micdrop_agent import ProviderError
from micdrop_agent.providers.failures import status_error, without_secrets
from micdrop_agent.providers.responses.chat_stream import ChatTranslator
from micdrop_agent.providers.responses.http_stream import BodyReader
from micdrop_agent.providers.secret_forms import hide_forms

if TYPE_CHECKING:
    from collections.abc import Callable

KEY: Final = 'Zq7+w/Lr<9"Tj Xk=4Vd&Pn'

FORMS: Final[dict[str, Callable[[str], str]]] = {
    "as it is": str,
    "percent": lambda key: quote(key, safe=""),
    "plus": quote_plus,
    "JSON": lambda key: json.dumps(key)[1:-1],
    "HTML": html.escape,
    "repr": repr,
    "capitals": str.upper,
    "small": str.lower,
    "lines": lambda key: "\n".join(key[n : n + 5] for n in range(0, len(key), 5)),
    "half": lambda key: key[: len(key) // 2 + 1],
    "base64": lambda key: base64.b64encode(key.encode()).decode(),
    "base64 for URLs": lambda key: base64.urlsafe_b64encode(key.encode()).decode(),
    "base64 behind a name": lambda key: base64.b64encode(f"api:{key}".encode()).decode(),
    "base64 in a pair": lambda key: base64.b64encode(f"user1:{key}:x".encode()).decode(),
}


def _shows(text: str, key: str) -> bool:
    """Whether eight signs of the key, in a row, or of its codings, are there to read."""
    plain = "".join(text.split()).casefold()
    for form in (key, quote(key, safe=""), base64.b64encode(key.encode()).decode()):
        bare = "".join(form.split()).casefold()
        if any(bare[n : n + 8] in plain for n in range(max(1, len(bare) - 8))):
            return True
    return False


@pytest.mark.parametrize("form", FORMS)
def test_no_form_of_a_key_is_in_an_error(form: str) -> None:
    echo = FORMS[form](KEY)
    bodies = [
        {"error": {"message": f"bad key {echo} here", "code": echo, "type": echo}},
        {"error": f"bad key: {echo}"},
        {"detail": [{"msg": echo, "loc": ["header", echo]}]},
        {"message": echo},
    ]
    for body in bodies:
        headers = {"x-request-id": echo, "location": f"https://x/{echo}?k={echo}"}
        for status in (307, 401, 429, 500):
            error = status_error(status, headers, json.dumps(body).encode(), provider="p", secret=KEY)
            told = f"{error} {error!r} {error.code} {error.request_id} {''.join(traceback.format_exception(error))}"
            assert not _shows(told, KEY), told
    cause = ProviderError("the connection broke", kind="connection")
    cause.__cause__ = ValueError(f"illegal header value {echo!r}")
    clean = without_secrets(cause, KEY)
    assert not _shows("".join(traceback.format_exception(clean)), KEY)


def test_the_title_of_a_page_shows_no_key() -> None:
    reader = BodyReader(ChatTranslator("p", KEY))
    reader.feed(f"<html><title>no such key: {html.escape(KEY)}</title>".encode())
    assert reader.translator.failure is not None
    assert not _shows(str(reader.translator.failure), KEY)


@given(
    key=st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), min_size=6, max_size=60),
    around=st.text(max_size=20),
)
def test_a_key_of_any_signs_is_found(key: str, around: str) -> None:
    assert key not in hide_forms(f"{around}{key}{around}", key).replace("***", "") or key in around
