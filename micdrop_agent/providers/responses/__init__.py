"""From the bytes of a response to the events of the turn loop: server-sent events, text, calls, usage. No I/O."""
