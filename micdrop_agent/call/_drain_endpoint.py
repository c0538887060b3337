"""The state of a worker over HTTP, for balancers, probes and whoever adds workers; plain ASGI."""

from __future__ import annotations

import hmac
import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from micdrop_agent.call._drain import Drain

__all__ = ["respond"]


async def respond(drain: Drain, over: Callable[[], Awaitable[object]], scope: Any, send: Any) -> None:
    """Answer one request; ``over`` waits for the end of the drain."""
    if scope["type"] != "http":
        raise ValueError("the endpoint of a Drain answers HTTP only")
    status, body = await _answer(drain, over, scope)
    kind = b"text/plain; version=0.0.4; charset=utf-8" if isinstance(body, str) else b"application/json"
    data = (body if isinstance(body, str) else json.dumps(body)).encode()
    headers = [
        (b"content-type", kind),
        (b"content-length", str(len(data)).encode()),
        (b"cache-control", b"no-store"),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else data})


async def _answer(drain: Drain, over: Callable[[], Awaitable[object]], scope: Any) -> tuple[int, Any]:
    wanted = scope["path"].rstrip("/").rpartition("/")[2]
    if wanted == "drain" and _may_drain(drain, scope):
        drain.start()
        await over()
        return 200, state(drain)
    if wanted == "live":
        return 200, {"live": True}
    if wanted == "ready":
        reason = drain.refuses
        return (200 if reason is None else 503), {"ready": reason is None, "reason": reason}
    if wanted == "load":
        return 200, state(drain)
    if wanted == "metrics":
        return 200, metrics(drain)
    return 404, {"error": "there are live, ready, load and metrics; and drain, with the token"}


def _may_drain(drain: Drain, scope: Any) -> bool:
    """Whether the request has brought the token. Without it nothing tells that there is something to find."""
    if drain.token is None:
        return False
    given = dict(scope["headers"]).get(b"authorization", b"")
    return hmac.compare_digest(given, f"Bearer {drain.token}".encode())


def state(drain: Drain) -> dict[str, Any]:
    """What ``load`` tells."""
    return {
        "calls": drain.calls,
        "capacity": drain.capacity,
        "loop_lag": round(drain.loop_lag, 4),
        "load": round(drain.load, 4),
        "draining": drain.draining,
        "refused": drain.refused,
    }


def metrics(drain: Drain) -> str:
    """The same in Prometheus' text format."""
    lines: list[str] = []
    for name, kind, value in (
        ("micdrop_calls", "gauge", drain.calls),
        ("micdrop_calls_capacity", "gauge", drain.capacity),
        ("micdrop_load", "gauge", round(drain.load, 4)),
        ("micdrop_loop_lag_seconds", "gauge", round(drain.loop_lag, 4)),
        ("micdrop_draining", "gauge", int(drain.draining)),
        ("micdrop_calls_refused_total", "counter", drain.refused),
    ):
        if value is not None:
            lines += [f"# TYPE {name} {kind}", f"{name} {value}"]
    return "\n".join(lines) + "\n"
