"""Pure maths from matched records to a verdict: no I/O, no clock, no log."""
