"""``paceline run``: starts a job instrumented, and what it needs beside it."""
