"""The collector, the analysis and the page of Paceline."""

__version__ = "0.1.0"
