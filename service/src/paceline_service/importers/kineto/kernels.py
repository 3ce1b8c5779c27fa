"""Which kernels talk to other GPUs: those of known names, and those that only look like it.

The names are those of the sources of NCCL 2.0 to 2.30, RCCL up to ROCm 7, MSCCL and MSCCL++, of
torch's symmetric memory, and of libraries for inference and mixtures of experts (docs/formats/
kineto.md). Inductor names a kernel after all operations that it fused, also after those around it:
such a kernel never talks.
"""

from __future__ import annotations

import re
from functools import lru_cache

# Compiled by ``re`` when they are first needed: who only takes what others read needs the first.
_MANGLED = r"_Z(\d{1,4})(?=[A-Za-z_])"
_LIBRARY = r"(?i)nccl|rccl|msccl"
"""In the kernel's own name: ncclAllReduceRingLLKernel_sum_f32 (2.0 to 2.7), ncclKernel_AllReduce_
RING_LL_Sum_float (2.8 to 2.18), ncclDevKernel_... (since 2.19), ncclSymDevKernel_... (2.27) and
ncclSymkDevKernel_... (since 2.28) for symmetric memory; rcclGenericKernel, mscclKernel_..."""
_OTHERS = (
    r"(?i)mscclpp::"  # MSCCL++: only their parameters tell
    r"|(one|two)_?shot_?(all_?reduce|reduce_?scatter)|multimem_\w{0,60}(reduce|gather)"
    r"|hybridcubemeshallreduce|cross_device_reduce_\d|allreduce_prototype|allreduce_fusion"
    r"|(^|[^a-z])deep_ep::|moea2a(dispatch|combine)|userbuffers|nvshmem|rocshmem|oneccl"
)
_HELPERS = r"(?i)checkfornan|^at::|^at_cuda_detail|^cub::|^thrust::|memcpy|memset"
"""Launched by a call of a collective without being one: a check for NaN, copies into one buffer."""
_FUSED = r"^triton_\w*fused"
_LOOKS_LIKE_IT = (
    r"(?i)all_?reduce|all_?gather|reduce_?scatter|all_?(to|2)_?all|(?<![a-z])a2a|send_?recv"
    r"|cross_?device|symm_?mem|multimem|(?<![a-z])p2p|(?<![a-z])[a-z]{0,3}ccl(?![ru])"
)


@lru_cache(maxsize=4096)
def function_of(kernel: str) -> str:
    """Return a kernel's name without result, parameters, and what compilers add to it."""
    if match := re.match(_MANGLED, kernel):
        return kernel[match.end() : match.end() + int(match[1])]
    text = kernel.replace("(anonymous namespace)::", "").removeprefix("void ")
    return text.partition("(")[0].removesuffix(".kd").strip()


@lru_cache(maxsize=4096)
def is_communication(kernel: str) -> bool:
    """Whether a kernel is a known one that exchanges data with other GPUs."""
    function = function_of(kernel)
    if re.match(_FUSED, function):
        return False
    return bool(re.search(_LIBRARY, function) or re.search(_OTHERS, kernel))


@lru_cache(maxsize=4096)
def is_of_a_collective(kernel: str) -> bool:
    """Whether a kernel that a collective's call launched is the collective, whatever its name."""
    return not re.search(_HELPERS, function_of(kernel))


@lru_cache(maxsize=4096)
def looks_like_communication(kernel: str) -> bool:
    """Whether a kernel of no known name may be one that exchanges data with other GPUs."""
    function = function_of(kernel)
    if re.match(_FUSED, function) or re.search(_HELPERS, function) or is_communication(kernel):
        return False
    return re.search(_LOOKS_LIKE_IT, function) is not None
