"""Telemetry of a node: GPUs, the kernel log, host and network (docs/telemetry.md)."""
