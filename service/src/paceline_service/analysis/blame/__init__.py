"""Who waited for whom, and whose delay is charged with it."""
