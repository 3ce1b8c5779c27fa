"""Offline input: files of records become what the analysis is given."""
