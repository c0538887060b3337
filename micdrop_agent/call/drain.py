"""Starts the drain of a worker and waits until it is over: a command for Kubernetes' preStop, or for a script.

    MICDROP_DRAIN_TOKEN=... python -m micdrop_agent.call.drain http://127.0.0.1:8000/fleet/drain

The address is that of ``Drain.endpoint``, the token that of ``Drain(token=...)``. Exit codes: 0; 1 with one line on
stderr if the worker cannot be reached or refuses; 2 on bad usage.
"""

from __future__ import annotations

import os
import sys
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main"]

TOKEN: Final = "MICDROP_DRAIN_TOKEN"  # noqa: S105 - the name of the variable that holds it
PATIENCE: Final = 3600.0
"""Seconds; whoever started this command has a limit of their own."""

OK: Final = 200


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    address = urlsplit(given[0] if len(given) == 1 else "")
    if address.scheme not in {"http", "https"} or not address.netloc:
        return _fail(2, f"usage: python -m micdrop_agent.call.drain URL, with the token in {TOKEN}")
    make = HTTPSConnection if address.scheme == "https" else HTTPConnection
    connection = make(address.netloc, timeout=PATIENCE)
    try:
        headers = {"Authorization": f"Bearer {os.environ.get(TOKEN, '')}"}
        connection.request("POST", address.path or "/", headers=headers)
        response = connection.getresponse()
        response.read()
    except (OSError, HTTPException, ValueError) as error:
        return _fail(1, f"the worker cannot be reached: {str(error) or type(error).__name__}")
    finally:
        connection.close()
    if response.status != OK:
        return _fail(1, f"the worker answers {response.status}: is {TOKEN} the token of its Drain, and the path right?")
    return 0


def _fail(code: int, why: str) -> int:
    sys.stderr.write(f"{why}\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
