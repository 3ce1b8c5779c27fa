"""Replicas that hold other parameters than the rest (docs/replicas.md)."""
