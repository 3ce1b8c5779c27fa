"""Stand-ins for hardware: an NVML without GPUs, sysfs and procfs, captures of real GPUs."""
