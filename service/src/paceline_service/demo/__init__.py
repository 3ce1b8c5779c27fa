"""The demonstration: a real training job with one slow rank, watched live."""
