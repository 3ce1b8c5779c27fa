"""Settings of running jobs: what is to be recorded, from which step on, and who follows."""
