"""The turn loop that every model provider shares, and the protocol that a provider fulfils.

ModelAgent ── Step (request, retries, tools) ── Provider.open() ──▶ ProviderStream
"""
