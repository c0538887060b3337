"""Model providers: each one only translates; the turn loop is in ``model_agent``."""
