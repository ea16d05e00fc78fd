"""Questions, one module a kind."""
