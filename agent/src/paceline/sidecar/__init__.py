"""The sidecar: one process per node that reads the rings and sends frames."""
