"""``paceline doctor``: what works here, what does not, and what to do about it."""

from paceline.doctor.command import main

__all__ = ["main"]
