"""Flight Recorder dumps of PyTorch: what every rank had issued and finished when it hung."""

from paceline_service.importers.flight_recorder.answer import begins_dump, read_dumps

__all__ = ["begins_dump", "read_dumps"]
