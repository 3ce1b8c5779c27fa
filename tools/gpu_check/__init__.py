"""`make gpu-check`: what only a machine with an NVIDIA GPU can show (docs/gpu.md).

Needs torch with CUDA and a C compiler; of Paceline only the agent's sources, nothing installed.
"""
