"""The exceptions of Paceline.

Every message gives the value that was met, the limit it broke and the remedy.
The command line turns ``exit_code`` into its status; the collector maps
``http_status`` once, in ``paceline_service.errors``.
"""

from __future__ import annotations


class PacelineError(Exception):
    """Base of every error that a user of Paceline can meet."""

    exit_code = 2
    http_status = 500


class ConfigError(PacelineError):
    """A setting, an argument or the environment cannot be used."""

    http_status = 400


class RingError(PacelineError):
    """A ring file cannot be created, mapped or understood."""


class WireError(PacelineError):
    """A frame is corrupt, of an unknown version, or over a limit."""

    http_status = 400


class TransportError(PacelineError):
    """The collector cannot be reached or refused what was sent."""

    http_status = 503


class InputError(PacelineError):
    """A file or a request that was given as input cannot be read."""

    http_status = 400


class AnalysisError(PacelineError):
    """The analysis met data that it cannot treat honestly."""
