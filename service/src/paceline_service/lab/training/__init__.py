"""What runs on the ranks under torchrun; torch is imported here only, and nothing imports it."""
