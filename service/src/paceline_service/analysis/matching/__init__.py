"""Which records of different ranks belong together: steps, collectives, timelines."""
