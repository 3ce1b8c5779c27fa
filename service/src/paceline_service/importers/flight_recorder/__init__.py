"""Flight Recorder dumps of PyTorch: what every rank had issued and finished when it hung."""
