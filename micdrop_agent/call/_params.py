"""What a client sends before its call begins, and how a call is refused.

Close codes of the protocol: 4400 bad request, 4401 unauthorized, 4404 not found; 1011 any other
error; 1001 the server goes away, and the client may come back at once. After the first three, and
after 1000, the browser client does not reconnect.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import anyio

from micdrop_agent.errors import MicdropError
from micdrop_agent.options import check_seconds

if TYPE_CHECKING:
    from collections.abc import Callable

    from micdrop_agent.call._protocol import Link

__all__ = [
    "BAD_REQUEST",
    "GOING_AWAY",
    "INTERNAL_ERROR",
    "NOT_FOUND",
    "UNAUTHORIZED",
    "CallRefusedError",
    "close_code",
    "params",
]

GOING_AWAY: Final = 1001
INTERNAL_ERROR: Final = 1011
BAD_REQUEST: Final = 4400
UNAUTHORIZED: Final = 4401
NOT_FOUND: Final = 4404

PATIENCE: Final = 3.0
"""Seconds that a client has for its params (as in Micdrop)."""


class CallRefusedError(MicdropError):
    """A call that does not begin; ``starlette_link`` closes the connection with its code.

    Args:
        code: The close code, for example 4401.
        reason: What the client reads with it.

    Source: Micdrop ``MicdropError``.
    """

    def __init__(self, code: int, reason: str = "") -> None:
        super().__init__(f"{code} {reason}".strip())
        self.code = code
        self.reason = reason


async def params(
    link: Link,
    validate: Callable[[Any], Any] | None = None,
    *,
    patience: float = PATIENCE,
) -> Any:
    """Wait for the first frame of the client, the JSON of its params, and return them.

    Call it before ``Call.run()``; what the client sends after its params stays with the link.

    Args:
        link: The connection.
        validate: Is given the decoded JSON; what it returns is returned. A ``ValueError``,
            ``TypeError`` or ``LookupError``, alone or in a group, means that the params are invalid.
        patience: Seconds to wait for them.

    Raises:
        CallRefusedError: They did not come, or are invalid (4400); or ``validate`` raised one.
        anyio.EndOfStream: The client has gone.

    Source: Micdrop ``waitForParams``.
    """
    check_seconds("patience", patience, zero=False)
    frame: str | bytes | None = None
    with anyio.move_on_after(patience):
        frame = await link.receive()
    if frame is None:
        raise CallRefusedError(BAD_REQUEST, "Missing params")
    try:
        decoded = json.loads(frame)
        return decoded if validate is None else validate(decoded)
    except CallRefusedError:
        raise
    except (ValueError, TypeError, LookupError, RecursionError, ExceptionGroup) as error:
        raise CallRefusedError(BAD_REQUEST, "Invalid params") from error


def close_code(error: BaseException | None) -> tuple[int, str]:
    """Close code and reason for what ended the work with a client.

    1000 after a call, and for a client that has gone by itself; the code of a refusal; 1001 for a
    cancellation, because the server goes away, and for a call that another worker has; 1011 for any other error.
    """
    if isinstance(error, CallRefusedError):
        return error.code, error.reason
    if is_moved(error):
        return GOING_AWAY, ""
    if error is None or isinstance(error, anyio.EndOfStream):
        return 1000, ""
    return (INTERNAL_ERROR if isinstance(error, Exception) else GOING_AWAY), ""


def is_moved(error: BaseException | None) -> bool:
    """Whether another worker has the call: the client that is sent away comes back to it."""
    if not isinstance(error, MicdropError):
        return False
    # Only now: most calls have no store, which need not be loaded for them.
    from micdrop_agent.store.protocol import CallMovedError

    return isinstance(error, CallMovedError)
