"""Sending a request, and noticing that the server refuses it before it was sent.

A server may answer a large request before it has read it (413, 401), and then close, reset, or read no
further and wait. So what is larger than the buffers of both systems is sent beside the reading of the
response; what is smaller is always taken by them at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import anyio

from micdrop_agent._interrupts import defer_interrupts, start_soon
from micdrop_agent.errors import ProviderError
from micdrop_agent.transport.direct_response import read_more

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

    from micdrop_agent.transport.connection import Connection
    from micdrop_agent.transport.parser import ResponseParser

__all__ = ["SENT_FIRST_BYTES", "response_refuses", "send_request", "send_while_reading"]

SENT_FIRST_BYTES: Final = 64 * 1024
"""Longest request that is sent before the response is looked for: systems take more than that at once."""

_REFUSALS: Final = 300
"""From this status on the rest of the request is of no interest."""


def response_refuses(parser: ResponseParser) -> bool:
    """Whether the head that came says that the server does not want the request."""
    return parser.status >= _REFUSALS


async def send_request(connection: Connection, request: bytes) -> None:
    """Send ``request``; until that is done the connection is good for nothing else."""
    connection.broken = True
    try:
        await connection.stream.send(request)
    except (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
        return  # Its response may be waiting here all the same. If there is none, reading says so.
    connection.broken = False


async def send_while_reading(connection: Connection, parser: ResponseParser, request: bytes) -> None:
    """As ``send_request()``, but end as soon as the server has refused the request.

    Raises:
        ProviderError: The connection broke, or what came is not a valid response.
    """
    failure: ProviderError | None = None

    async with anyio.create_task_group() as tasks:
        start_soon(tasks, _send_beside, tasks, connection, request)
        try:
            while not parser.head_complete:
                await read_more(connection, parser)
        except ProviderError as error:
            failure = error
        if failure is not None or response_refuses(parser):
            tasks.cancel_scope.cancel()
    try:
        if failure is not None:
            raise failure
    finally:
        del failure  # its traceback holds this frame


@defer_interrupts
async def _send_beside(tasks: TaskGroup, connection: Connection, request: bytes) -> None:
    await send_request(connection, request)
    if not connection.broken:
        tasks.cancel_scope.cancel()  # The response can wait now, as that to any other request.
