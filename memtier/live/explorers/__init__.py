"""Explorers, one module a kind."""
