"""Traces of the PyTorch profiler (Kineto, Chrome trace format) become what the analysis takes."""
