"""Answers and records for others to read: text, event logs."""
