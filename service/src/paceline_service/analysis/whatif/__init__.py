"""What slow ranks and stages cost, and what removing them would give back."""
