"""The join of what the hooks saw of a call with what the NCCL plugin measured of it."""
