"""From a conversation to the body of a request: history, pairs of calls, ids, tools, settings. No I/O."""
