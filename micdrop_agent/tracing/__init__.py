"""What tells of an answer once it is over: OpenTelemetry spans and metrics, and a page that shows its course.

stop = instrument(agent)                      # spans and metrics (pip install 'micdrop-agent[otel]')
html = render_trace({"call": results})        # one page, no dependency
"""

from __future__ import annotations

from micdrop_agent.tracing.otel import instrument
from micdrop_agent.tracing.page import render_trace

__all__ = ["instrument", "render_trace"]
