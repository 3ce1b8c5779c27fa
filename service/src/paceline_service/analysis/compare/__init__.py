"""Two runs: whether their steps differ at all, in what, and on which ranks."""
