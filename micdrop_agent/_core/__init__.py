"""The core: an agent, its answers, the turn through which an answer has an effect, and what they keep.

    Agent ── answer() ──▶ Answer (scope, pipe) ── Turn (fence, claim) ──▶ Ledger ──▶ Conversation

It knows no provider, no store and no HTTP. Private: the names that users need are in ``micdrop_agent``.
"""
