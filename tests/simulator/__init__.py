"""A seeded simulator of synchronous training; it imports nothing from the analysis."""
