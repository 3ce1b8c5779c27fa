"""SQLite exports of Nsight Systems: kernels, launches and NVTX ranges of the ranks of a node."""
