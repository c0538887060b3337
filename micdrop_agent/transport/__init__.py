"""How providers reach their servers: one seam, three ways.

* ``DirectTransport``: a small HTTP/1.1 client of our own; the default.
* ``ClientTransport``: an ``httpx2.AsyncClient`` or ``httpx.AsyncClient``; the user's, or ours behind a proxy.
* ``SdkTransport``: the user's ``openai.AsyncOpenAI`` or ``AsyncAzureOpenAI``.

``open_transport`` chooses.
"""

from __future__ import annotations

from micdrop_agent.transport.base import ConnectFn, Response, Transport
from micdrop_agent.transport.choose import check_client, check_environment, check_server, open_transport
from micdrop_agent.transport.client_transport import ClientTransport
from micdrop_agent.transport.direct import DirectTransport
from micdrop_agent.transport.sdk_transport import SdkTransport
from micdrop_agent.transport.url import BaseUrl

__all__ = [
    "BaseUrl",
    "ClientTransport",
    "ConnectFn",
    "DirectTransport",
    "Response",
    "SdkTransport",
    "Transport",
    "check_client",
    "check_environment",
    "check_server",
    "open_transport",
]
