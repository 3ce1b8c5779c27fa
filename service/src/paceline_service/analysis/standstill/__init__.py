"""Jobs that stand still: who is missing where."""
