"""Traces through ``paceline analyze`` and through other tools (docs/bench.md)."""
