"""What looks like a slow rank and is not: uneven work, and everybody slower."""
