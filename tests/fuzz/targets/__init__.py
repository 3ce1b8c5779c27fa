"""What is fuzzed: each module has ``seeds``, ``check``, ``mutate`` and ``INSTRUMENT``."""

NAMES = ("frames", "ring", "events", "kineto", "dumps", "parquet")
