"""Findings with a life: opened, updated, closed."""
