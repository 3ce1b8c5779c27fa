"""Frames between sidecar and collector: msgpack envelopes of shuffled, compressed columns."""
