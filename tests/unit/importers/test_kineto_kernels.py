"""Kernels of communication of every generation, and those that only look like one."""

from __future__ import annotations

import pytest

from paceline.vocabulary import Op
from paceline_service.importers.kineto.kernels import (
    function_of,
    is_communication,
    is_of_a_collective,
    looks_like_communication,
)
from paceline_service.importers.kineto.names import op_of

OLD, MIDDLE = "(ncclColl)", "(ncclDevComm*, unsigned long, ncclWork*)"
NEW = "(ncclDevKernelArgsStorage<4096ul>)"

GENERATIONS = [
    # NCCL 2.0 to 2.3, 2.4 to 2.7: algorithm and protocol came with 2.4, sends with 2.7
    (f"ncclAllReduceLLKernel_sum_f32{OLD}", Op.ALL_REDUCE),
    (f"ncclAllReduceKernel_sum_f16{OLD}", Op.ALL_REDUCE),
    (f"ncclAllReduceRingLLKernel_sum_f32{OLD}", Op.ALL_REDUCE),
    (f"ncclAllReduceTreeLL128Kernel_sum_f16{OLD}", Op.ALL_REDUCE),
    (f"ncclBroadcastRingLLKernel_copy_i8{OLD}", Op.BROADCAST),
    (f"ncclReduceRingLLKernel_sum_f32{OLD}", Op.REDUCE),
    (f"ncclAllGatherRingLLKernel_copy_i8{OLD}", Op.ALL_GATHER),
    (f"ncclReduceScatterRingLLKernel_sum_f16{OLD}", Op.REDUCE_SCATTER),
    (f"ncclSendRecvKernel_copy_i8{OLD}", Op.UNKNOWN),
    # 2.8 to 2.18
    ("ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)", Op.ALL_REDUCE),
    (f"ncclKernel_AllReduce_TREE_LL_Sum_half{MIDDLE}", Op.ALL_REDUCE),
    (f"ncclKernel_AllReduce_COLLNET_CHAIN_SIMPLE_Sum___nv_bfloat16{MIDDLE}", Op.ALL_REDUCE),
    (f"ncclKernel_AllGather_RING_LL_Sum_int8_t{MIDDLE}", Op.ALL_GATHER),
    (f"ncclKernel_ReduceScatter_RING_LL_Sum_half{MIDDLE}", Op.REDUCE_SCATTER),
    (f"ncclKernel_Broadcast_RING_LL_Sum_int8_t{MIDDLE}", Op.BROADCAST),
    (f"ncclKernel_Reduce_RING_LL_Sum_float{MIDDLE}", Op.REDUCE),
    (f"ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t{MIDDLE}", Op.UNKNOWN),
    # since 2.19
    (f"ncclDevKernel_AllReduce_Sum_f32_RING_LL{NEW}", Op.ALL_REDUCE),
    (f"ncclDevKernel_AllReduce_Sum_bf16_TREE_LL{NEW}", Op.ALL_REDUCE),
    (f"ncclDevKernel_AllReduce_Sum_bf16_NVLS_SIMPLE{NEW}", Op.ALL_REDUCE),
    (f"ncclDevKernel_AllReduce_SumPostDiv_u32_RING_LL{NEW}", Op.ALL_REDUCE),
    (f"ncclDevKernel_AllGather_PAT_SIMPLE{NEW}", Op.ALL_GATHER),
    (f"ncclDevKernel_AllGatherV_RING_LL{NEW}", Op.ALL_GATHER),
    (f"ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL{NEW}", Op.REDUCE_SCATTER),
    (f"ncclDevKernel_Broadcast_RING_LL{NEW}", Op.BROADCAST),
    (f"ncclDevKernel_Reduce_Sum_f32_RING_LL{NEW}", Op.REDUCE),
    (f"ncclDevKernel_SendRecv{NEW}", Op.UNKNOWN),
    (f"ncclDevKernel_Generic{NEW}", Op.UNKNOWN),
    # symmetric memory: 2.27, and since 2.28
    ("ncclSymDevKernel_AllReduce_RSxLD_AGxST_sum_bf16(ncclSymDevArgs)", Op.ALL_REDUCE),
    ("ncclSymDevKernel_AllGather_STMC(ncclSymDevArgs)", Op.ALL_GATHER),
    ("ncclSymkDevKernel_ReduceScatter_LDMC_sum_f16(ncclSymkDevWorkArgs4K)", Op.REDUCE_SCATTER),
    ("ncclSymkDevKernel_AllReduce_RSxLDMC_AGxSTMC_sum_bf16(ncclSymkDevWorkArgs4K)", Op.ALL_REDUCE),
    ("ncclSymkDevKernel_AllGather_RailRing_LsaSTMC(ncclSymkDevWorkArgs4K)", Op.ALL_GATHER),
    # RCCL, MSCCL, MSCCL++
    ("void rcclGenericKernel<1, 1, false>(ncclDevComm*)", Op.UNKNOWN),
    ("ncclDevKernel_Generic(ncclDevComm*, channelMasks, ncclWork*)", Op.UNKNOWN),
    (f"ncclDevKernel_Generic_4{NEW} [clone .kd]", Op.UNKNOWN),
    ("ncclDevKernelDebug_Generic(ncclDevComm*, channelMasks, ncclWork*)", Op.UNKNOWN),
    ("_Z23ncclDevKernel_Generic_224ncclDevKernelArgsStorageILm4096EE", Op.UNKNOWN),
    ("_Z39ncclDevKernel_AllReduce_Sum_f32_RING_LL24ncclDevKernelArgsStorageILm4096EE.kd",
     Op.ALL_REDUCE),
    ("mscclKernel_Sum_half_Simple_false(ncclDevComm*, mscclAlgo*, mscclWork*)", Op.UNKNOWN),
    ("void allreduce7<__half>(mscclpp::DeviceHandle<mscclpp::MemoryChannel>*)", Op.ALL_REDUCE),
    # torch's symmetric memory, and libraries of their own
    ("void c10d::symmetric_memory::(anonymous namespace)::"
     "multimem_one_shot_all_reduce_kernel<c10::BFloat16, 16>(c10::BFloat16*)", Op.ALL_REDUCE),
    ("void two_shot_all_reduce_kernel_inplace<float, 16, 8>(float*)", Op.ALL_REDUCE),
    ("void multimem_all_gather_kernel<16>(char*)", Op.ALL_GATHER),
    ("void c10d::intra_node_comm::oneShotAllReduceKernel<8u, true>(x)", Op.ALL_REDUCE),
    ("void vllm::cross_device_reduce_1stage<__half, 2>(x)", Op.ALL_REDUCE),
    ("void deep_ep::intranode::dispatch<8, 768, 8192>(int4*)", Op.UNKNOWN),
]  # fmt: skip


@pytest.mark.parametrize(("name", "op"), GENERATIONS)
def test_kernels_of_every_generation_are_known_with_their_operation(name: str, op: Op) -> None:
    assert is_communication(name)
    assert not looks_like_communication(name)
    assert op_of(name) == op


@pytest.mark.parametrize(
    "name",
    [
        "ampere_sgemm_128x64_nn",
        "Memcpy DtoD (Device -> Device)",
        "__amd_rocclr_copyBuffer.kd",
        "__amd_rocclr_fillBufferAligned",
        "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>(x)",
        "void at::native::vectorized_gather_kernel<16, long>(char*, char*)",
        "void at::native::(anonymous namespace)::indexSelectSmallIndex<float>(x)",
        "void at::native::_scatter_gather_elementwise_kernel<128, 8>(int)",
        "void cub::DeviceReduceSingleTileKernel<x>(x)",
        "triton_poi_fused_all_gather_into_tensor_wait_tensor_0",
        "triton_red_fused_all_reduce_native_layer_norm_3",
        "void checkForNaN<c10::BFloat16>(c10::BFloat16*, unsigned long)",
        "void oneRankReduce<FuncPreMulSum<float>>(void*, void*, ncclDevRedOpFull)",
        "void flash_fwd_splitkv_combine_kernel<x>(x)",
        "ambient_occlusion_kernel",
    ],
)
def test_other_kernels_are_neither_known_nor_suspected(name: str) -> None:
    assert not is_communication(name)
    assert not looks_like_communication(name)


@pytest.mark.parametrize(
    "name",
    [
        "void my_lib::fast_allreduce<float>(x)",
        "_ring_all_gather_kernel",
        "void foo::ReduceScatterV2(x)",
        "all2all_token_kernel",
        "eccl_kernel_0",
        "p2p_push(float*)",
    ],
)
def test_kernels_that_look_like_communication_are_suspected_but_not_taken_for_it(
    name: str,
) -> None:
    assert not is_communication(name)
    assert looks_like_communication(name)


def test_a_kernel_that_the_call_of_a_collective_launched_is_one_unless_it_only_helps() -> None:
    assert is_of_a_collective("void aiter::some_new_kernel<float>(x)")
    assert not is_of_a_collective("void checkForNaN<float>(float*, unsigned long)")
    assert not is_of_a_collective("void at::native::CatArrayBatchedCopy<float>(x)")


@pytest.mark.parametrize(
    ("kernel", "function"),
    [
        ("ncclKernel_X(ncclDevComm*, unsigned long)", "ncclKernel_X"),
        ("void c10d::(anonymous namespace)::barrier_kernel(unsigned int**)",
         "c10d::barrier_kernel"),
        ("ncclDevKernel_Generic_4(ncclDevKernelArgsStorage<4096ul>) [clone .kd]",
         "ncclDevKernel_Generic_4"),
        ("_Z23ncclDevKernel_Generic_424ncclDevKernelArgsStorageILm4096EE",
         "ncclDevKernel_Generic_4"),
        ("_Znot_mangled", "_Znot_mangled"),
        ("_Z9999x", "x"),
    ],
)  # fmt: skip
def test_a_kernels_function_is_without_result_and_parameters(kernel: str, function: str) -> None:
    assert function_of(kernel) == function


@pytest.mark.parametrize(
    "part", ["multimem_", "triton_", "nccl", "all_", "(anonymous namespace)::"]
)
def test_names_of_any_length_are_looked_at_in_time_that_grows_with_their_length(part: str) -> None:
    name = part * 100_000
    assert isinstance(is_communication(name), bool)
    assert isinstance(looks_like_communication(name), bool)
