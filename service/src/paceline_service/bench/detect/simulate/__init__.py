"""A training job that is not there; it imports nothing of the analysis (docs/math/simulator.md)."""
