"""``paceline top``: a running job in the terminal (docs/cli.md)."""
