"""``paceline bench ingest --ranks N``: the load of a whole job on a collector."""
