"""Why a rank is slow: what was sampled and recorded in the same steps."""
