"""What reports an answer once it is over: OpenTelemetry spans and metrics, and a page that shows its course.

stop = instrument(agent)                      # spans and metrics (pip install 'micdrop-agent[otel]')
html = render_trace(results)                  # one page, no dependency
html = render_call(result)                    # the same for a whole call
record_call(result)                           # and its spans and metrics
"""

from __future__ import annotations

from micdrop_agent.tracing.call_page import render_call
from micdrop_agent.tracing.otel import instrument
from micdrop_agent.tracing.otel_call import record_call
from micdrop_agent.tracing.page import render_trace

__all__ = ["instrument", "record_call", "render_call", "render_trace"]
