"""Is a rank really slower, or is it chance: peers, scores, evidence, episodes."""
