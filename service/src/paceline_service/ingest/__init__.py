"""Frames in: bounded, authenticated, decoded, without duplicates, durable, then acknowledged."""
