"""Names of kernels, calls and annotations of every generation."""

from __future__ import annotations

from pathlib import Path

import pytest

from paceline.vocabulary import Op, Phase
from paceline_service.importers.kineto.names import (
    function_of,
    is_communication,
    op_of,
    phase_of,
    rank_of,
    step_of,
)


@pytest.mark.parametrize(
    ("name", "op"),
    [
        ("ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)", Op.ALL_REDUCE),
        ("ncclKernel_AllReduce_TREE_LL_Sum_half(ncclDevComm*)", Op.ALL_REDUCE),
        ("ncclAllReduceRingLLKernel_sum_f32(ncclColl)", Op.ALL_REDUCE),
        ("ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)", Op.ALL_GATHER),
        ("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgs)", Op.REDUCE_SCATTER),
        ("ncclKernel_Broadcast_RING_LL_Sum_int8_t(ncclDevComm*)", Op.BROADCAST),
        ("ncclDevKernel_Reduce_Sum_f32_RING_LL(x)", Op.REDUCE),
        ("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*)", Op.UNKNOWN),
        ("ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>)", Op.UNKNOWN),
        ("nccl:all_to_all", Op.ALL_TO_ALL),
        ("nccl:_all_gather_base", Op.ALL_GATHER),
        ("nccl:_reduce_scatter_base", Op.REDUCE_SCATTER),
        ("c10d::alltoall_base_", Op.ALL_TO_ALL),
        ("c10d::allreduce_", Op.ALL_REDUCE),
        ("gloo:all_reduce", Op.ALL_REDUCE),
        ("gloo:reduce_scatter", Op.REDUCE_SCATTER),
        ("gloo:barrier", Op.BARRIER),
        ("gloo:gather", Op.GATHER),
        ("gloo:scatter", Op.SCATTER),
        ("gloo:send", Op.SEND),
        ("c10d::recv_", Op.RECV),
        ("allreduce_coalesced", Op.ALL_REDUCE),
        ("reduce_scatter_tensor_coalesced", Op.REDUCE_SCATTER),
    ],
)  # fmt: skip
def test_operations_are_told_from_names(name: str, op: Op) -> None:
    assert op_of(name) == op


@pytest.mark.parametrize(
    ("name", "talks"),
    [
        ("ncclDevKernel_AllGather_RING_LL(x)", True),
        ("ncclKernel_AllReduce_RING_LL_Sum_float(x)", True),
        ("void rcclGenericKernel<1, 1, false>(x)", True),
        ("mscclKernel_Sum_half_LL(x)", True),
        ("ampere_sgemm_128x64_nn", False),
        ("Memcpy DtoD", False),
    ],
)
def test_kernels_of_communication_are_told_from_others(name: str, talks: bool) -> None:
    assert is_communication(name) is talks


def test_a_kernels_parameters_are_no_part_of_its_function() -> None:
    assert function_of("ncclKernel_X(ncclDevComm*, unsigned long)") == "ncclKernel_X"


@pytest.mark.parametrize(
    ("name", "phase"),
    [
        ("## forward ##", Phase.FORWARD),
        ("forward", Phase.FORWARD),
        ("DistributedDataParallel.forward", Phase.FORWARD),
        ("forward_pass", Phase.FORWARD),
        ("## backward ##", Phase.BACKWARD),
        ("Optimizer.step#AdamW.step", Phase.OPTIMIZER),
        ("## optimizer ##", Phase.OPTIMIZER),
        ("Optimizer.zero_grad#AdamW.zero_grad", None),
        ("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", Phase.INPUT),
        ("## alltoall_fwd_single ##", None),
        ("look forward to it", None),
    ],
)
def test_phases_are_told_from_annotations(name: str, phase: Phase | None) -> None:
    assert phase_of(name) == phase


def test_steps_are_told_from_the_profilers_own_annotation() -> None:
    assert step_of("ProfilerStep#12") == 12
    assert step_of("ProfilerStep#") is None
    assert step_of("my ProfilerStep#12") is None
    assert step_of("ProfilerStep#" + "9" * 40) is None


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("worker7_step_12.1694128201553.pt.trace.json.gz", 7),
        ("rank-0.Apr_03_18_51_38.1102.pt.trace.json.gz", 0),
        ("gpu-rank-00-chrome-trace.json", 0),
        ("trace_rank_13.json", 13),
        ("host-4_311.1694128201553.pt.trace.json", None),
    ],
)
def test_ranks_are_told_from_file_names(name: str, rank: int | None) -> None:
    assert rank_of(Path(name)) == rank
