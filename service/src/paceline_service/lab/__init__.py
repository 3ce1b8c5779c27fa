"""The lab: train a small transformer in data parallel, and see every synchronization."""
