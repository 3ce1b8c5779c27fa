"""The step that a job with healthy ranks would take, against the one that it takes."""
