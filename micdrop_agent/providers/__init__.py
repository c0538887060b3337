"""Model providers: each one only translates; the turn loop is in ``micdrop_agent.model``."""
