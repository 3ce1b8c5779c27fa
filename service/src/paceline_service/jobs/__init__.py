"""Jobs and their attempts: frames into the analysis, its answers to the store and to clients."""
