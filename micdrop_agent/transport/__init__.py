"""How providers reach their servers: one seam, three ways.

* ``direct.DirectTransport``: a small HTTP/1.1 client of our own; the default.
* ``client_transport.ClientTransport``: an ``httpx2.AsyncClient`` or ``httpx.AsyncClient``; the user's, or ours
  behind a proxy.
* ``sdk_transport.SdkTransport``: the user's ``openai.AsyncOpenAI`` or ``AsyncAzureOpenAI``.

``choose.open_transport`` chooses, and loads only the one that it chose.
"""

from __future__ import annotations
