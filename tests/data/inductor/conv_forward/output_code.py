# AOT ID: ['0_forward']
from ctypes import c_void_p, c_long, c_int
import torch
import math
import random
import os
import tempfile
from math import inf, nan
from cmath import nanj
from torch._inductor.hooks import run_intermediate_hooks
from torch._inductor.utils import maybe_profile
from torch._inductor.codegen.memory_planning import _align as align
from torch import device, empty_strided
from torch._inductor.async_compile import AsyncCompile
from torch._inductor.select_algorithm import extern_kernels
from torch._C._dynamo.guards import copy_if_misaligned
import triton
import triton.language as tl
from torch._inductor.runtime.triton_heuristics import start_graph, end_graph
from torch._C import _cuda_getCurrentRawStream as get_raw_stream

aten = torch.ops.aten
inductor_ops = torch.ops.inductor
_quantized = torch.ops._quantized
assert_size_stride = torch._C._dynamo.guards.assert_size_stride
assert_alignment = torch._C._dynamo.guards.assert_alignment
empty_strided_cpu = torch._C._dynamo.guards._empty_strided_cpu
empty_strided_cpu_pinned = torch._C._dynamo.guards._empty_strided_cpu_pinned
empty_strided_cuda = torch._C._dynamo.guards._empty_strided_cuda
empty_strided_xpu = torch._C._dynamo.guards._empty_strided_xpu
empty_strided_mtia = torch._C._dynamo.guards._empty_strided_mtia
reinterpret_tensor = torch._C._dynamo.guards._reinterpret_tensor
alloc_from_pool = torch.ops.inductor._alloc_from_pool
async_compile = AsyncCompile()
empty_strided_p2p = torch._C._distributed_c10d._SymmetricMemory.empty_strided_p2p


# kernel path: /tmp/cache/72/c72d7chd7rtwezh476o4q4uqrw2ngpzzu3svf6mopj6emyf3es4c.py
# Topologically Sorted Source Nodes: [conv2d, batch_norm, y], Original ATen: [aten.convolution, aten._native_batch_norm_legit_functional, aten.relu, aten.copy_]
# Source node to ATen node mapping:
#   batch_norm => add_1, add_2, add_3, add_4, mul, mul_1, mul_2, mul_3, mul_4, mul_5, mul_6, rsqrt, squeeze, squeeze_2, sub, unsqueeze, unsqueeze_1, unsqueeze_2, unsqueeze_3, var_mean
#   conv2d => convolution
#   y => relu
# Graph fragment:
#   %buf0 : Tensor "f32[4, 16, 32, 32][16384, 1024, 32, 1]cuda:0" = PlaceHolder[target=buf0]
#   %primals_2 : Tensor "f32[16][1]cuda:0" = PlaceHolder[target=primals_2]
#   %convolution : Tensor "f32[4, 16, 32, 32][16384, 1024, 32, 1]cuda:0" = PlaceHolder[target=convolution]
#   %buf3 : Tensor "f32[1, 16, 1, 1][16, 1, 16, 16]cuda:0" = PlaceHolder[target=buf3]
#   %copy__2 : Tensor "f32[16][1]cuda:0" = PlaceHolder[target=copy__2]
#   %add_3 : Tensor "f32[16][1]cuda:0" = PlaceHolder[target=add_3]
#   %getitem_1 : Tensor "f32[1, 16, 1, 1][16, 1, 16, 16]cuda:0" = PlaceHolder[target=getitem_1]
#   %copy__1 : Tensor "f32[16][1]cuda:0" = PlaceHolder[target=copy__1]
#   %add_2 : Tensor "f32[16][1]cuda:0" = PlaceHolder[target=add_2]
#   %primals_7 : Tensor "f32[16][1]cuda:0" = PlaceHolder[target=primals_7]
#   %primals_8 : Tensor "f32[16][1]cuda:0" = PlaceHolder[target=primals_8]
#   %convolution : Tensor "f32[4, 16, 32, 32][16384, 1024, 32, 1]cuda:0"[num_users=3] = call_function[target=torch.ops.aten.convolution.default](args = (%primals_3, %primals_1, %primals_2, [1, 1], [1, 1], [1, 1], False, [0, 0], 1), kwargs = {})
#   %var_mean : [num_users=2] = call_function[target=torch.ops.aten.var_mean.correction](args = (%convolution, [0, 2, 3]), kwargs = {correction: 0, keepdim: True})
#   %add_1 : Tensor "f32[1, 16, 1, 1][16, 1, 1, 1]cuda:0"[num_users=1] = call_function[target=torch.ops.aten.add.Tensor](args = (%getitem, 1e-05), kwargs = {})
#   %rsqrt : Tensor "f32[1, 16, 1, 1][16, 1, 1, 1]cuda:0"[num_users=2] = call_function[target=torch.ops.aten.rsqrt.default](args = (%add_1,), kwargs = {})
#   %sub : Tensor "f32[4, 16, 32, 32][16384, 1024, 32, 1]cuda:0"[num_users=1] = call_function[target=torch.ops.aten.sub.Tensor](args = (%convolution, %getitem_1), kwargs = {})
#   %mul : Tensor "f32[4, 16, 32, 32][16384, 1024, 32, 1]cuda:0"[num_users=1] = call_function[target=torch.ops.aten.mul.Tensor](args = (%sub, %rsqrt), kwargs = {})
#   %squeeze : Tensor "f32[16][1]cuda:0"[num_users=2] = call_function[target=torch.ops.aten.squeeze.dims](args = (%getitem_1, [0, 2, 3]), kwargs = {})
#   %mul_1 : Tensor "f32[16][1]cuda:0"[num_users=1] = call_function[target=torch.ops.aten.mul.Tensor](args = (%squeeze, 0.1), kwargs = {})
#   %mul_2 : Tensor "f32[16][1]cuda:0"[num_users=1] = call_function[target=torch.ops.aten.mul.Tensor](args = (%primals_5, 0.9), kwargs = {})
#   %add_2 : Tensor "f32[16][1]cuda:0"[num_users=1] = call_function[target=torch.ops.aten.add.Tensor](args = (%mul_1, %mul_2), kwargs = {})
#   %squeeze_2 : Tensor "f32[16][1]cuda:0"[num_users=1] = call_function[target=torch.ops.aten.squeeze.dims](args = (%getitem, [0, 2, 3]), kwargs = {})
#   %mul_3 : Tensor "f32[16][1]cuda:0"[num_users=1] = call_function[target=torch.ops.aten.mul.Tensor](args = (%squeeze_2, 1.0002442002442002), kwargs = {})
#   %mul_4 : Tensor "f32[16][1]cuda:0"[num_users=1] = call_function[target=torch.ops.aten.mul.Tensor](args = (%mul_3, 0.1), kwargs = {})
#   %mul_5 : Tensor "f32[16][1]cuda:0"[num_users=1] = call_function[target=torch.ops.aten.mul.Tensor](args = (%primals_6, 0.9), kwargs = {})
#   %add_3 : Tensor "f32[16][1]cuda:0"[num_users=1] = call_function[target=torch.ops.aten.add.Tensor](args = (%mul_4, %mul_5), kwargs = {})
#   %unsqueeze : Tensor "f32[16, 1][1, 1]cuda:0"[num_users=1] = call_function[target=torch.ops.aten.unsqueeze.default](args = (%primals_7, -1), kwargs = {})
#   %unsqueeze_1 : Tensor "f32[16, 1, 1][1, 1, 1]cuda:0"[num_users=1] = call_function[target=torch.ops.aten.unsqueeze.default](args = (%unsqueeze, -1), kwargs = {})
#   %mul_6 : Tensor "f32[4, 16, 32, 32][16384, 1024, 32, 1]cuda:0"[num_users=1] = call_function[target=torch.ops.aten.mul.Tensor](args = (%mul, %unsqueeze_1), kwargs = {})
#   %unsqueeze_2 : Tensor "f32[16, 1][1, 1]cuda:0"[num_users=1] = call_function[target=torch.ops.aten.unsqueeze.default](args = (%primals_8, -1), kwargs = {})
#   %unsqueeze_3 : Tensor "f32[16, 1, 1][1, 1, 1]cuda:0"[num_users=1] = call_function[target=torch.ops.aten.unsqueeze.default](args = (%unsqueeze_2, -1), kwargs = {})
#   %add_4 : Tensor "f32[4, 16, 32, 32][16384, 1024, 32, 1]cuda:0"[num_users=1] = call_function[target=torch.ops.aten.add.Tensor](args = (%mul_6, %unsqueeze_3), kwargs = {})
#   %relu : Tensor "f32[4, 16, 32, 32][16384, 1024, 32, 1]cuda:0"[num_users=3] = call_function[target=torch.ops.aten.relu.default](args = (%add_4,), kwargs = {})
#   %copy__1 : Tensor "f32[16][1]cuda:0"[num_users=0] = call_function[target=torch.ops.aten.copy_.default](args = (%primals_5, %add_2), kwargs = {})
#   %copy__2 : Tensor "f32[16][1]cuda:0"[num_users=0] = call_function[target=torch.ops.aten.copy_.default](args = (%primals_6, %add_3), kwargs = {})
#   return %convolution,%getitem_1,%buf3,%rsqrt,%add_3,%buf20,%add_2,%buf17,%relu
triton_red_fused__native_batch_norm_legit_functional_convolution_copy__relu_0 = async_compile.triton('triton_red_fused__native_batch_norm_legit_functional_convolution_copy__relu_0', '''
import triton
import triton.language as tl

from torch._inductor.runtime import triton_helpers, triton_heuristics
from torch._inductor.runtime.triton_helpers import libdevice, math as tl_math
from torch._inductor.runtime.hints import AutotuneHint, ReductionHint, TileHint, DeviceProperties
triton_helpers.set_driver_to_gpu()

@triton_heuristics.reduction(
    size_hints={'x': 16, 'r0_': 4096},
    reduction_hint=ReductionHint.INNER,
    filename=__file__,
    triton_meta={'signature': {'in_out_ptr0': '*fp32', 'in_ptr0': '*fp32', 'in_ptr1': '*fp32', 'in_ptr2': '*fp32', 'in_ptr3': '*fp32', 'in_ptr4': '*fp32', 'out_ptr0': '*fp32', 'out_ptr2': '*fp32', 'out_ptr4': '*fp32', 'out_ptr6': '*fp32', 'out_ptr7': '*fp32', 'xnumel': 'i32', 'r0_numel': 'i32', 'XBLOCK': 'constexpr', 'R0_BLOCK': 'constexpr'}, 'device': DeviceProperties(type='cuda', index=0, multi_processor_count=132, cc=90, major=9, regs_per_multiprocessor=65536, max_threads_per_multi_processor=2048, max_threads_per_block=1024, warp_size=32), 'constants': {}, 'native_matmul': False, 'enable_fp_fusion': True, 'launch_pdl': False, 'disable_ftz': False, 'configs': [{(0,): [['tt.divisibility', 16]], (1,): [['tt.divisibility', 16]], (2,): [['tt.divisibility', 16]], (3,): [['tt.divisibility', 16]], (4,): [['tt.divisibility', 16]], (5,): [['tt.divisibility', 16]], (6,): [['tt.divisibility', 16]], (7,): [['tt.divisibility', 16]], (8,): [['tt.divisibility', 16]], (9,): [['tt.divisibility', 16]], (10,): [['tt.divisibility', 16]], (11,): [['tt.divisibility', 16]], (12,): [['tt.divisibility', 16]]}]},
    inductor_meta={'grid_type': 'Grid1D', 'kernel_name': 'triton_red_fused__native_batch_norm_legit_functional_convolution_copy__relu_0', 'mutated_arg_names': ['in_out_ptr0', 'in_ptr1', 'in_ptr2', 'out_ptr4', 'out_ptr6'], 'optimize_mem': False, 'no_x_dim': False, 'atomic_add_found': False, 'num_load': 7, 'num_store': 6, 'num_reduction': 2, 'autotune_hints': set(), 'tiling_scores': {'x': 832, 'r0_': 1310720}, 'backend_hash': 'A7974629523B4D795A8C0C90B2297822F17759D8C9C132184692A517F69FBE14', 'assert_indirect_indexing': True, 'autotune_local_cache': True, 'autotune_pointwise': True, 'autotune_remote_cache': None, 'force_disable_caches': False, 'dynamic_scale_rblock': True, 'incremental_autotune': False, 'max_autotune': False, 'max_autotune_pointwise': False, 'min_split_scan_rblock': 256, 'spill_threshold': 16, 'store_cubin': False, 'deterministic': False, 'batch_invariant': False, 'force_filter_reduction_configs': False, 'mix_order_reduction_allow_multi_stages': True, 'dynamic_disable_pipelining': True, 'are_deterministic_algorithms_enabled': False}
)
@triton.jit
def triton_red_fused__native_batch_norm_legit_functional_convolution_copy__relu_0(in_out_ptr0, in_ptr0, in_ptr1, in_ptr2, in_ptr3, in_ptr4, out_ptr0, out_ptr2, out_ptr4, out_ptr6, out_ptr7, xnumel, r0_numel, XBLOCK : tl.constexpr, R0_BLOCK : tl.constexpr):
    xnumel = 16
    r0_numel = 4096
    rnumel = r0_numel
    RBLOCK: tl.constexpr = R0_BLOCK
    xoffset = tl.program_id(0) * XBLOCK
    xindex = xoffset + tl.arange(0, XBLOCK)[:, None]
    xmask = xindex < xnumel
    r0_base = tl.arange(0, R0_BLOCK)[None, :]
    rbase = r0_base
    x0 = xindex
    tmp1 = tl.load(in_ptr0 + (x0), xmask, eviction_policy='evict_last')
    tmp4_mean = tl.zeros([XBLOCK, R0_BLOCK], tl.float32)
    tmp4_m2 = tl.zeros([XBLOCK, R0_BLOCK], tl.float32)
    tmp4_weight = tl.zeros([XBLOCK, R0_BLOCK], tl.float32)
    for r0_offset in tl.range(0, r0_numel, R0_BLOCK):
        r0_index = r0_offset + r0_base
        r0_mask = r0_index < r0_numel
        roffset = r0_offset
        rindex = r0_index
        r0_1 = (r0_index % 1024)
        r0_2 = r0_index // 1024
        tmp0 = tl.load(in_out_ptr0 + (r0_1 + 1024*x0 + 16384*r0_2), r0_mask & xmask, eviction_policy='evict_first', other=0.0)
        tmp2 = tmp0 + tmp1
        tmp3 = tl.broadcast_to(tmp2, [XBLOCK, R0_BLOCK])
        tmp4_mean_next, tmp4_m2_next, tmp4_weight_next = triton_helpers.welford_reduce(
            tmp3, tmp4_mean, tmp4_m2, tmp4_weight, roffset == 0
        )
        tmp4_mean = tl.where(r0_mask & xmask, tmp4_mean_next, tmp4_mean)
        tmp4_m2 = tl.where(r0_mask & xmask, tmp4_m2_next, tmp4_m2)
        tmp4_weight = tl.where(r0_mask & xmask, tmp4_weight_next, tmp4_weight)
        tl.store(in_out_ptr0 + (r0_1 + 1024*x0 + 16384*r0_2), tmp2, r0_mask & xmask)
    tmp5, tmp6, tmp7 = triton_helpers.welford(tmp4_mean, tmp4_m2, tmp4_weight, 1)
    tmp4 = tmp5[:, None]
    tmp8 = tmp6[:, None]
    tmp9 = tmp7[:, None]
    tl.store(out_ptr0 + (x0), tmp4, xmask)
    tmp19 = tl.load(in_ptr1 + (x0), xmask)
    tmp24 = tl.load(in_ptr2 + (x0), xmask)
    tmp10 = tl.full([1, 1], 4096.0, tl.float32)
    tmp11 = (tmp8 / tmp10)
    tmp12 = tl.full([1, 1], 1e-05, tl.float32)
    tmp13 = tmp11 + tmp12
    tmp14 = libdevice.rsqrt(tmp13)
    tmp15 = tl.full([1, 1], 1.0002442002442002, tl.float32)
    tmp16 = tmp11 * tmp15
    tmp17 = tl.full([1, 1], 0.1, tl.float32)
    tmp18 = tmp16 * tmp17
    tmp20 = tl.full([1, 1], 0.9, tl.float32)
    tmp21 = tmp19 * tmp20
    tmp22 = tmp18 + tmp21
    tmp23 = tmp4 * tmp17
    tmp25 = tmp24 * tmp20
    tmp26 = tmp23 + tmp25
    tl.store(out_ptr2 + (x0), tmp14, xmask)
    tl.store(out_ptr4 + (x0), tmp22, xmask)
    tl.store(out_ptr6 + (x0), tmp26, xmask)
    tmp30 = tl.load(in_ptr3 + (x0), xmask, eviction_policy='evict_last')
    tmp32 = tl.load(in_ptr4 + (x0), xmask, eviction_policy='evict_last')
    for r0_offset in tl.range(0, r0_numel, R0_BLOCK):
        r0_index = r0_offset + r0_base
        r0_mask = r0_index < r0_numel
        roffset = r0_offset
        rindex = r0_index
        r0_1 = (r0_index % 1024)
        r0_2 = r0_index // 1024
        tmp27 = tl.load(in_out_ptr0 + (r0_1 + 1024*x0 + 16384*r0_2), r0_mask & xmask, eviction_policy='evict_first', other=0.0)
        tmp28 = tmp27 - tmp4
        tmp29 = tmp28 * tmp14
        tmp31 = tmp29 * tmp30
        tmp33 = tmp31 + tmp32
        tmp34 = tl.full([1, 1], 0, tl.int32)
        tmp35 = triton_helpers.maximum(tmp34, tmp33)
        tl.store(out_ptr7 + (r0_1 + 1024*x0 + 16384*r0_2), tmp35, r0_mask & xmask)
''', device_str='cuda')


# kernel path: /tmp/cache/jo/cjo34krwkrmpcdltxrxvq5gdwjt6kc2k37kwgn2iozkv6pj644qz.py
# Topologically Sorted Source Nodes: [conv2d_1, add, y_1, le], Original ATen: [aten.convolution, aten.add, aten.relu, aten.threshold_backward]
# Source node to ATen node mapping:
#   add => add_5
#   conv2d_1 => convolution_1
#   le => le
#   y_1 => relu_1
# Graph fragment:
#   %buf7 : Tensor "f32[4, 16, 32, 32][16384, 1024, 32, 1]cuda:0" = PlaceHolder[target=buf7]
#   %primals_10 : Tensor "f32[16][1]cuda:0" = PlaceHolder[target=primals_10]
#   %relu : Tensor "f32[4, 16, 32, 32][16384, 1024, 32, 1]cuda:0" = PlaceHolder[target=relu]
#   %relu_1 : Tensor "f32[4, 16, 32, 32][16384, 1024, 32, 1]cuda:0" = PlaceHolder[target=relu_1]
#   %convolution_1 : Tensor "f32[4, 16, 32, 32][16384, 1024, 32, 1]cuda:0"[num_users=1] = call_function[target=torch.ops.aten.convolution.default](args = (%relu, %primals_9, %primals_10, [1, 1], [1, 1], [1, 1], False, [0, 0], 1), kwargs = {})
#   %add_5 : Tensor "f32[4, 16, 32, 32][16384, 1024, 32, 1]cuda:0"[num_users=1] = call_function[target=torch.ops.aten.add.Tensor](args = (%convolution_1, %relu), kwargs = {})
#   %relu_1 : Tensor "f32[4, 16, 32, 32][16384, 1024, 32, 1]cuda:0"[num_users=2] = call_function[target=torch.ops.aten.relu.default](args = (%add_5,), kwargs = {})
#   %le : Tensor "b8[4, 16, 32, 32][16384, 1024, 32, 1]cuda:0"[num_users=1] = call_function[target=torch.ops.aten.le.Scalar](args = (%relu_1, 0), kwargs = {})
#   return %relu_1,%le
triton_poi_fused_add_convolution_relu_threshold_backward_1 = async_compile.triton('triton_poi_fused_add_convolution_relu_threshold_backward_1', '''
import triton
import triton.language as tl

from torch._inductor.runtime import triton_helpers, triton_heuristics
from torch._inductor.runtime.triton_helpers import libdevice, math as tl_math
from torch._inductor.runtime.hints import AutotuneHint, ReductionHint, TileHint, DeviceProperties
triton_helpers.set_driver_to_gpu()

@triton_heuristics.pointwise(
    size_hints={'x': 65536}, 
    filename=__file__,
    triton_meta={'signature': {'in_out_ptr0': '*fp32', 'in_ptr0': '*fp32', 'in_ptr1': '*fp32', 'out_ptr0': '*i1', 'xnumel': 'i32', 'XBLOCK': 'constexpr'}, 'device': DeviceProperties(type='cuda', index=0, multi_processor_count=132, cc=90, major=9, regs_per_multiprocessor=65536, max_threads_per_multi_processor=2048, max_threads_per_block=1024, warp_size=32), 'constants': {}, 'native_matmul': False, 'enable_fp_fusion': True, 'launch_pdl': False, 'disable_ftz': False, 'configs': [{(0,): [['tt.divisibility', 16]], (1,): [['tt.divisibility', 16]], (2,): [['tt.divisibility', 16]], (3,): [['tt.divisibility', 16]], (4,): [['tt.divisibility', 16]]}]},
    inductor_meta={'grid_type': 'Grid1D', 'kernel_name': 'triton_poi_fused_add_convolution_relu_threshold_backward_1', 'mutated_arg_names': ['in_out_ptr0'], 'optimize_mem': False, 'no_x_dim': False, 'atomic_add_found': False, 'num_load': 3, 'num_store': 2, 'num_reduction': 0, 'autotune_hints': set(), 'tiling_scores': {'x': 1179712}, 'backend_hash': 'A7974629523B4D795A8C0C90B2297822F17759D8C9C132184692A517F69FBE14', 'assert_indirect_indexing': True, 'autotune_local_cache': True, 'autotune_pointwise': True, 'autotune_remote_cache': None, 'force_disable_caches': False, 'dynamic_scale_rblock': True, 'incremental_autotune': False, 'max_autotune': False, 'max_autotune_pointwise': False, 'min_split_scan_rblock': 256, 'spill_threshold': 16, 'store_cubin': False, 'deterministic': False, 'batch_invariant': False, 'force_filter_reduction_configs': False, 'mix_order_reduction_allow_multi_stages': True, 'dynamic_disable_pipelining': True, 'are_deterministic_algorithms_enabled': False},
    min_elem_per_thread=0
)
@triton.jit
def triton_poi_fused_add_convolution_relu_threshold_backward_1(in_out_ptr0, in_ptr0, in_ptr1, out_ptr0, xnumel, XBLOCK : tl.constexpr):
    xnumel = 65536
    xoffset = tl.program_id(0) * XBLOCK
    xindex = xoffset + tl.arange(0, XBLOCK)[:]
    xmask = tl.full([XBLOCK], True, tl.int1)[:]
    x3 = xindex
    x1 = ((xindex // 1024) % 16)
    tmp0 = tl.load(in_out_ptr0 + (x3), None)
    tmp1 = tl.load(in_ptr0 + (x1), None, eviction_policy='evict_last')
    tmp3 = tl.load(in_ptr1 + (x3), None)
    tmp2 = tmp0 + tmp1
    tmp4 = tmp2 + tmp3
    tmp5 = tl.full([1], 0, tl.int32)
    tmp6 = triton_helpers.maximum(tmp5, tmp4)
    tmp7 = tl.full([1], 0.0, tl.float32)
    tmp8 = tmp6 <= tmp7
    tl.store(in_out_ptr0 + (x3), tmp6, None)
    tl.store(out_ptr0 + (x3), tmp8, None)
''', device_str='cuda')


# kernel path: /tmp/cache/ti/cti337k2fu3u6zmxu3pqdkp22zlw5ot6rldbezd5li35rplpousg.py
# Topologically Sorted Source Nodes: [conv2d_1, add, y_1, max_pool2d], Original ATen: [aten.convolution, aten.add, aten.relu, aten.max_pool2d_with_indices]
# Source node to ATen node mapping:
#   add => add_5
#   conv2d_1 => convolution_1
#   max_pool2d => _low_memory_max_pool_with_offsets, getitem_3
#   y_1 => relu_1
# Graph fragment:
#   %relu_1 : Tensor "f32[4, 16, 32, 32][16384, 1024, 32, 1]cuda:0" = PlaceHolder[target=relu_1]
#   %convolution_1 : Tensor "f32[4, 16, 32, 32][16384, 1024, 32, 1]cuda:0"[num_users=1] = call_function[target=torch.ops.aten.convolution.default](args = (%relu, %primals_9, %primals_10, [1, 1], [1, 1], [1, 1], False, [0, 0], 1), kwargs = {})
#   %add_5 : Tensor "f32[4, 16, 32, 32][16384, 1024, 32, 1]cuda:0"[num_users=1] = call_function[target=torch.ops.aten.add.Tensor](args = (%convolution_1, %relu), kwargs = {})
#   %relu_1 : Tensor "f32[4, 16, 32, 32][16384, 1024, 32, 1]cuda:0"[num_users=2] = call_function[target=torch.ops.aten.relu.default](args = (%add_5,), kwargs = {})
#   %_low_memory_max_pool_with_offsets : [num_users=2] = call_function[target=torch.ops.prims._low_memory_max_pool_with_offsets.default](args = (%relu_1, [4, 4], [4, 4], [0, 0], [1, 1], False), kwargs = {})
#   %getitem_3 : Tensor "i8[4, 16, 8, 8][1024, 64, 8, 1]cuda:0"[num_users=1] = call_function[target=operator.getitem](args = (%_low_memory_max_pool_with_offsets, 1), kwargs = {})
#   return %getitem_2,%getitem_3
triton_poi_fused_add_convolution_max_pool2d_with_indices_relu_2 = async_compile.triton('triton_poi_fused_add_convolution_max_pool2d_with_indices_relu_2', '''
import triton
import triton.language as tl

from torch._inductor.runtime import triton_helpers, triton_heuristics
from torch._inductor.runtime.triton_helpers import libdevice, math as tl_math
from torch._inductor.runtime.hints import AutotuneHint, ReductionHint, TileHint, DeviceProperties
triton_helpers.set_driver_to_gpu()

@triton_heuristics.pointwise(
    size_hints={'x': 4096}, 
    filename=__file__,
    triton_meta={'signature': {'in_ptr0': '*fp32', 'out_ptr0': '*fp32', 'out_ptr1': '*i8', 'xnumel': 'i32', 'XBLOCK': 'constexpr'}, 'device': DeviceProperties(type='cuda', index=0, multi_processor_count=132, cc=90, major=9, regs_per_multiprocessor=65536, max_threads_per_multi_processor=2048, max_threads_per_block=1024, warp_size=32), 'constants': {}, 'native_matmul': False, 'enable_fp_fusion': True, 'launch_pdl': False, 'disable_ftz': False, 'configs': [{(0,): [['tt.divisibility', 16]], (1,): [['tt.divisibility', 16]], (2,): [['tt.divisibility', 16]], (3,): [['tt.divisibility', 16]]}]},
    inductor_meta={'grid_type': 'Grid1D', 'kernel_name': 'triton_poi_fused_add_convolution_max_pool2d_with_indices_relu_2', 'mutated_arg_names': [], 'optimize_mem': False, 'no_x_dim': False, 'atomic_add_found': False, 'num_load': 16, 'num_store': 2, 'num_reduction': 0, 'autotune_hints': set(), 'tiling_scores': {'x': 40960}, 'backend_hash': 'A7974629523B4D795A8C0C90B2297822F17759D8C9C132184692A517F69FBE14', 'assert_indirect_indexing': True, 'autotune_local_cache': True, 'autotune_pointwise': True, 'autotune_remote_cache': None, 'force_disable_caches': False, 'dynamic_scale_rblock': True, 'incremental_autotune': False, 'max_autotune': False, 'max_autotune_pointwise': False, 'min_split_scan_rblock': 256, 'spill_threshold': 16, 'store_cubin': False, 'deterministic': False, 'batch_invariant': False, 'force_filter_reduction_configs': False, 'mix_order_reduction_allow_multi_stages': True, 'dynamic_disable_pipelining': True, 'are_deterministic_algorithms_enabled': False},
    min_elem_per_thread=0
)
@triton.jit
def triton_poi_fused_add_convolution_max_pool2d_with_indices_relu_2(in_ptr0, out_ptr0, out_ptr1, xnumel, XBLOCK : tl.constexpr):
    xnumel = 4096
    xoffset = tl.program_id(0) * XBLOCK
    xindex = xoffset + tl.arange(0, XBLOCK)[:]
    xmask = tl.full([XBLOCK], True, tl.int1)[:]
    x0 = (xindex % 8)
    x1 = xindex // 8
    x2 = xindex
    tmp0 = tl.load(in_ptr0 + (4*x0 + 128*x1), None, eviction_policy='evict_last')
    tmp1 = tl.load(in_ptr0 + (1 + 4*x0 + 128*x1), None, eviction_policy='evict_last')
    tmp3 = tl.load(in_ptr0 + (2 + 4*x0 + 128*x1), None, eviction_policy='evict_last')
    tmp5 = tl.load(in_ptr0 + (3 + 4*x0 + 128*x1), None, eviction_policy='evict_last')
    tmp7 = tl.load(in_ptr0 + (32 + 4*x0 + 128*x1), None, eviction_policy='evict_last')
    tmp9 = tl.load(in_ptr0 + (33 + 4*x0 + 128*x1), None, eviction_policy='evict_last')
    tmp11 = tl.load(in_ptr0 + (34 + 4*x0 + 128*x1), None, eviction_policy='evict_last')
    tmp13 = tl.load(in_ptr0 + (35 + 4*x0 + 128*x1), None, eviction_policy='evict_last')
    tmp15 = tl.load(in_ptr0 + (64 + 4*x0 + 128*x1), None, eviction_policy='evict_last')
    tmp17 = tl.load(in_ptr0 + (65 + 4*x0 + 128*x1), None, eviction_policy='evict_last')
    tmp19 = tl.load(in_ptr0 + (66 + 4*x0 + 128*x1), None, eviction_policy='evict_last')
    tmp21 = tl.load(in_ptr0 + (67 + 4*x0 + 128*x1), None, eviction_policy='evict_last')
    tmp23 = tl.load(in_ptr0 + (96 + 4*x0 + 128*x1), None, eviction_policy='evict_last')
    tmp25 = tl.load(in_ptr0 + (97 + 4*x0 + 128*x1), None, eviction_policy='evict_last')
    tmp27 = tl.load(in_ptr0 + (98 + 4*x0 + 128*x1), None, eviction_policy='evict_last')
    tmp29 = tl.load(in_ptr0 + (99 + 4*x0 + 128*x1), None, eviction_policy='evict_last')
    tmp2 = triton_helpers.maximum(tmp0, tmp1)
    tmp4 = triton_helpers.maximum(tmp2, tmp3)
    tmp6 = triton_helpers.maximum(tmp4, tmp5)
    tmp8 = triton_helpers.maximum(tmp6, tmp7)
    tmp10 = triton_helpers.maximum(tmp8, tmp9)
    tmp12 = triton_helpers.maximum(tmp10, tmp11)
    tmp14 = triton_helpers.maximum(tmp12, tmp13)
    tmp16 = triton_helpers.maximum(tmp14, tmp15)
    tmp18 = triton_helpers.maximum(tmp16, tmp17)
    tmp20 = triton_helpers.maximum(tmp18, tmp19)
    tmp22 = triton_helpers.maximum(tmp20, tmp21)
    tmp24 = triton_helpers.maximum(tmp22, tmp23)
    tmp26 = triton_helpers.maximum(tmp24, tmp25)
    tmp28 = triton_helpers.maximum(tmp26, tmp27)
    tmp30 = triton_helpers.maximum(tmp28, tmp29)
    tmp31 = tmp0 > tmp1
    tmp32 = tmp0 == tmp1
    tmp33 = tmp0 != tmp0
    tmp34 = tmp1 != tmp1
    tmp35 = tmp33 > tmp34
    tmp36 = tmp31 | tmp35
    tmp37 = tmp33 & tmp34
    tmp38 = tmp32 | tmp37
    tmp39 = tl.full([1], 0, tl.int64)
    tmp40 = tl.full([1], 1, tl.int64)
    tmp41 = tmp39 < tmp40
    tmp42 = tmp38 & tmp41
    tmp43 = tmp36 | tmp42
    tmp44 = tl.where(tmp43, tmp0, tmp1)
    tmp45 = tl.where(tmp43, tmp39, tmp40)
    tmp46 = tmp44 > tmp3
    tmp47 = tmp44 == tmp3
    tmp48 = tmp44 != tmp44
    tmp49 = tmp3 != tmp3
    tmp50 = tmp48 > tmp49
    tmp51 = tmp46 | tmp50
    tmp52 = tmp48 & tmp49
    tmp53 = tmp47 | tmp52
    tmp54 = tl.full([1], 2, tl.int64)
    tmp55 = tmp45 < tmp54
    tmp56 = tmp53 & tmp55
    tmp57 = tmp51 | tmp56
    tmp58 = tl.where(tmp57, tmp44, tmp3)
    tmp59 = tl.where(tmp57, tmp45, tmp54)
    tmp60 = tmp58 > tmp5
    tmp61 = tmp58 == tmp5
    tmp62 = tmp58 != tmp58
    tmp63 = tmp5 != tmp5
    tmp64 = tmp62 > tmp63
    tmp65 = tmp60 | tmp64
    tmp66 = tmp62 & tmp63
    tmp67 = tmp61 | tmp66
    tmp68 = tl.full([1], 3, tl.int64)
    tmp69 = tmp59 < tmp68
    tmp70 = tmp67 & tmp69
    tmp71 = tmp65 | tmp70
    tmp72 = tl.where(tmp71, tmp58, tmp5)
    tmp73 = tl.where(tmp71, tmp59, tmp68)
    tmp74 = tmp72 > tmp7
    tmp75 = tmp72 == tmp7
    tmp76 = tmp72 != tmp72
    tmp77 = tmp7 != tmp7
    tmp78 = tmp76 > tmp77
    tmp79 = tmp74 | tmp78
    tmp80 = tmp76 & tmp77
    tmp81 = tmp75 | tmp80
    tmp82 = tl.full([1], 4, tl.int64)
    tmp83 = tmp73 < tmp82
    tmp84 = tmp81 & tmp83
    tmp85 = tmp79 | tmp84
    tmp86 = tl.where(tmp85, tmp72, tmp7)
    tmp87 = tl.where(tmp85, tmp73, tmp82)
    tmp88 = tmp86 > tmp9
    tmp89 = tmp86 == tmp9
    tmp90 = tmp86 != tmp86
    tmp91 = tmp9 != tmp9
    tmp92 = tmp90 > tmp91
    tmp93 = tmp88 | tmp92
    tmp94 = tmp90 & tmp91
    tmp95 = tmp89 | tmp94
    tmp96 = tl.full([1], 5, tl.int64)
    tmp97 = tmp87 < tmp96
    tmp98 = tmp95 & tmp97
    tmp99 = tmp93 | tmp98
    tmp100 = tl.where(tmp99, tmp86, tmp9)
    tmp101 = tl.where(tmp99, tmp87, tmp96)
    tmp102 = tmp100 > tmp11
    tmp103 = tmp100 == tmp11
    tmp104 = tmp100 != tmp100
    tmp105 = tmp11 != tmp11
    tmp106 = tmp104 > tmp105
    tmp107 = tmp102 | tmp106
    tmp108 = tmp104 & tmp105
    tmp109 = tmp103 | tmp108
    tmp110 = tl.full([1], 6, tl.int64)
    tmp111 = tmp101 < tmp110
    tmp112 = tmp109 & tmp111
    tmp113 = tmp107 | tmp112
    tmp114 = tl.where(tmp113, tmp100, tmp11)
    tmp115 = tl.where(tmp113, tmp101, tmp110)
    tmp116 = tmp114 > tmp13
    tmp117 = tmp114 == tmp13
    tmp118 = tmp114 != tmp114
    tmp119 = tmp13 != tmp13
    tmp120 = tmp118 > tmp119
    tmp121 = tmp116 | tmp120
    tmp122 = tmp118 & tmp119
    tmp123 = tmp117 | tmp122
    tmp124 = tl.full([1], 7, tl.int64)
    tmp125 = tmp115 < tmp124
    tmp126 = tmp123 & tmp125
    tmp127 = tmp121 | tmp126
    tmp128 = tl.where(tmp127, tmp114, tmp13)
    tmp129 = tl.where(tmp127, tmp115, tmp124)
    tmp130 = tmp128 > tmp15
    tmp131 = tmp128 == tmp15
    tmp132 = tmp128 != tmp128
    tmp133 = tmp15 != tmp15
    tmp134 = tmp132 > tmp133
    tmp135 = tmp130 | tmp134
    tmp136 = tmp132 & tmp133
    tmp137 = tmp131 | tmp136
    tmp138 = tl.full([1], 8, tl.int64)
    tmp139 = tmp129 < tmp138
    tmp140 = tmp137 & tmp139
    tmp141 = tmp135 | tmp140
    tmp142 = tl.where(tmp141, tmp128, tmp15)
    tmp143 = tl.where(tmp141, tmp129, tmp138)
    tmp144 = tmp142 > tmp17
    tmp145 = tmp142 == tmp17
    tmp146 = tmp142 != tmp142
    tmp147 = tmp17 != tmp17
    tmp148 = tmp146 > tmp147
    tmp149 = tmp144 | tmp148
    tmp150 = tmp146 & tmp147
    tmp151 = tmp145 | tmp150
    tmp152 = tl.full([1], 9, tl.int64)
    tmp153 = tmp143 < tmp152
    tmp154 = tmp151 & tmp153
    tmp155 = tmp149 | tmp154
    tmp156 = tl.where(tmp155, tmp142, tmp17)
    tmp157 = tl.where(tmp155, tmp143, tmp152)
    tmp158 = tmp156 > tmp19
    tmp159 = tmp156 == tmp19
    tmp160 = tmp156 != tmp156
    tmp161 = tmp19 != tmp19
    tmp162 = tmp160 > tmp161
    tmp163 = tmp158 | tmp162
    tmp164 = tmp160 & tmp161
    tmp165 = tmp159 | tmp164
    tmp166 = tl.full([1], 10, tl.int64)
    tmp167 = tmp157 < tmp166
    tmp168 = tmp165 & tmp167
    tmp169 = tmp163 | tmp168
    tmp170 = tl.where(tmp169, tmp156, tmp19)
    tmp171 = tl.where(tmp169, tmp157, tmp166)
    tmp172 = tmp170 > tmp21
    tmp173 = tmp170 == tmp21
    tmp174 = tmp170 != tmp170
    tmp175 = tmp21 != tmp21
    tmp176 = tmp174 > tmp175
    tmp177 = tmp172 | tmp176
    tmp178 = tmp174 & tmp175
    tmp179 = tmp173 | tmp178
    tmp180 = tl.full([1], 11, tl.int64)
    tmp181 = tmp171 < tmp180
    tmp182 = tmp179 & tmp181
    tmp183 = tmp177 | tmp182
    tmp184 = tl.where(tmp183, tmp170, tmp21)
    tmp185 = tl.where(tmp183, tmp171, tmp180)
    tmp186 = tmp184 > tmp23
    tmp187 = tmp184 == tmp23
    tmp188 = tmp184 != tmp184
    tmp189 = tmp23 != tmp23
    tmp190 = tmp188 > tmp189
    tmp191 = tmp186 | tmp190
    tmp192 = tmp188 & tmp189
    tmp193 = tmp187 | tmp192
    tmp194 = tl.full([1], 12, tl.int64)
    tmp195 = tmp185 < tmp194
    tmp196 = tmp193 & tmp195
    tmp197 = tmp191 | tmp196
    tmp198 = tl.where(tmp197, tmp184, tmp23)
    tmp199 = tl.where(tmp197, tmp185, tmp194)
    tmp200 = tmp198 > tmp25
    tmp201 = tmp198 == tmp25
    tmp202 = tmp198 != tmp198
    tmp203 = tmp25 != tmp25
    tmp204 = tmp202 > tmp203
    tmp205 = tmp200 | tmp204
    tmp206 = tmp202 & tmp203
    tmp207 = tmp201 | tmp206
    tmp208 = tl.full([1], 13, tl.int64)
    tmp209 = tmp199 < tmp208
    tmp210 = tmp207 & tmp209
    tmp211 = tmp205 | tmp210
    tmp212 = tl.where(tmp211, tmp198, tmp25)
    tmp213 = tl.where(tmp211, tmp199, tmp208)
    tmp214 = tmp212 > tmp27
    tmp215 = tmp212 == tmp27
    tmp216 = tmp212 != tmp212
    tmp217 = tmp27 != tmp27
    tmp218 = tmp216 > tmp217
    tmp219 = tmp214 | tmp218
    tmp220 = tmp216 & tmp217
    tmp221 = tmp215 | tmp220
    tmp222 = tl.full([1], 14, tl.int64)
    tmp223 = tmp213 < tmp222
    tmp224 = tmp221 & tmp223
    tmp225 = tmp219 | tmp224
    tmp226 = tl.where(tmp225, tmp212, tmp27)
    tmp227 = tl.where(tmp225, tmp213, tmp222)
    tmp228 = tmp226 > tmp29
    tmp229 = tmp226 == tmp29
    tmp230 = tmp226 != tmp226
    tmp231 = tmp29 != tmp29
    tmp232 = tmp230 > tmp231
    tmp233 = tmp228 | tmp232
    tmp234 = tmp230 & tmp231
    tmp235 = tmp229 | tmp234
    tmp236 = tl.full([1], 15, tl.int64)
    tmp237 = tmp227 < tmp236
    tmp238 = tmp235 & tmp237
    tmp239 = tmp233 | tmp238
    tmp240 = tl.where(tmp239, tmp226, tmp29)
    tmp241 = tl.where(tmp239, tmp227, tmp236)
    tmp242 = tmp241.to(tl.int8)
    tl.store(out_ptr0 + (x2), tmp30, None)
    tl.store(out_ptr1 + (x2), tmp242, None)
''', device_str='cuda')


# kernel path: /tmp/cache/kz/ckzpgqqtc6qvco6ij6ohemupykwnx2nbvlfsbgmozhjsa5csbvgy.py
# Topologically Sorted Source Nodes: [add_], Original ATen: [aten.add, aten.copy_]
# Source node to ATen node mapping:
#   add_ => add
# Graph fragment:
#   %copy_ : Tensor "i64[][]cuda:0" = PlaceHolder[target=copy_]
#   %add : Tensor "i64[][]cuda:0" = PlaceHolder[target=add]
#   %add : Tensor "i64[][]cuda:0"[num_users=1] = call_function[target=torch.ops.aten.add.Tensor](args = (%primals_4, 1), kwargs = {})
#   %copy_ : Tensor "i64[][]cuda:0"[num_users=0] = call_function[target=torch.ops.aten.copy_.default](args = (%primals_4, %add), kwargs = {})
#   return %add,%buf14
triton_poi_fused_add_copy__3 = async_compile.triton('triton_poi_fused_add_copy__3', '''
import triton
import triton.language as tl

from torch._inductor.runtime import triton_helpers, triton_heuristics
from torch._inductor.runtime.triton_helpers import libdevice, math as tl_math
from torch._inductor.runtime.hints import AutotuneHint, ReductionHint, TileHint, DeviceProperties
triton_helpers.set_driver_to_gpu()

@triton_heuristics.pointwise(
    size_hints={'x': 1}, 
    filename=__file__,
    triton_meta={'signature': {'in_ptr0': '*i64', 'out_ptr1': '*i64', 'xnumel': 'constexpr', 'XBLOCK': 'constexpr'}, 'device': DeviceProperties(type='cuda', index=0, multi_processor_count=132, cc=90, major=9, regs_per_multiprocessor=65536, max_threads_per_multi_processor=2048, max_threads_per_block=1024, warp_size=32), 'constants': {'xnumel': 1}, 'native_matmul': False, 'enable_fp_fusion': True, 'launch_pdl': False, 'disable_ftz': False, 'configs': [{(0,): [['tt.divisibility', 16]], (1,): [['tt.divisibility', 16]]}]},
    inductor_meta={'grid_type': 'Grid1D', 'kernel_name': 'triton_poi_fused_add_copy__3', 'mutated_arg_names': ['in_ptr0', 'out_ptr1'], 'optimize_mem': False, 'no_x_dim': False, 'atomic_add_found': False, 'num_load': 1, 'num_store': 1, 'num_reduction': 0, 'autotune_hints': set(), 'backend_hash': 'A7974629523B4D795A8C0C90B2297822F17759D8C9C132184692A517F69FBE14', 'assert_indirect_indexing': True, 'autotune_local_cache': True, 'autotune_pointwise': True, 'autotune_remote_cache': None, 'force_disable_caches': False, 'dynamic_scale_rblock': True, 'incremental_autotune': False, 'max_autotune': False, 'max_autotune_pointwise': False, 'min_split_scan_rblock': 256, 'spill_threshold': 16, 'store_cubin': False, 'deterministic': False, 'batch_invariant': False, 'force_filter_reduction_configs': False, 'mix_order_reduction_allow_multi_stages': True, 'dynamic_disable_pipelining': True, 'are_deterministic_algorithms_enabled': False},
    min_elem_per_thread=0
)
@triton.jit
def triton_poi_fused_add_copy__3(in_ptr0, out_ptr1, xnumel, XBLOCK : tl.constexpr):
    xnumel = 1
    xoffset = tl.program_id(0) * XBLOCK
    xindex = xoffset + tl.arange(0, XBLOCK)[:]
    xmask = tl.full([XBLOCK], True, tl.int1)[:]
    tmp0 = tl.load(in_ptr0 + (0))
    tmp1 = tl.broadcast_to(tmp0, [XBLOCK])
    tmp2 = tl.full([1], 1, tl.int64)
    tmp3 = tmp1 + tmp2
    tl.store(out_ptr1 + (tl.full([XBLOCK], 0, tl.int32).broadcast_to(XBLOCK)), tmp3, None)
''', device_str='cuda')


async_compile.wait(globals())
del async_compile

class Runner:
    def __init__(self, partitions):
        self.partitions = partitions

    def recursively_apply_fns(self, fns):
        new_callables = []
        for fn, c in zip(fns, self.partitions):
            new_callables.append(fn(c))
        self.partitions = new_callables

    def call(self, args):
        primals_1, primals_2, primals_3, primals_4, primals_5, primals_6, primals_7, primals_8, primals_9, primals_10, primals_11, primals_12 = args
        args.clear()
        assert_size_stride(primals_3, (4, 3, 32, 32), (3072, 1024, 32, 1), 'input')
        assert_size_stride(primals_1, (16, 3, 3, 3), (27, 9, 3, 1), 'input')
        with torch.cuda._DeviceGuard(0):
            torch.cuda.set_device(0)
            primals_3 = copy_if_misaligned(primals_3)
            # Topologically Sorted Source Nodes: [conv2d], Original ATen: [aten.convolution]
            # [Provenance debug handles] extern_kernels.convolution:1
            buf0 = extern_kernels.convolution(primals_3, primals_1, stride=(1, 1), padding=(1, 1), dilation=(1, 1), transposed=False, output_padding=(0, 0), groups=1, bias=None)
            assert_size_stride(buf0, (4, 16, 32, 32), (16384, 1024, 32, 1), 'torch.ops.aten.convolution.default')
            assert_size_stride(primals_2, (16, ), (1, ), 'input')
            assert_size_stride(primals_6, (16, ), (1, ), 'input')
            assert_size_stride(primals_5, (16, ), (1, ), 'input')
            assert_size_stride(primals_7, (16, ), (1, ), 'input')
            assert_size_stride(primals_8, (16, ), (1, ), 'input')
            buf1 = buf0; del buf0  # reuse
            buf2 = empty_strided_cuda((1, 16, 1, 1), (16, 1, 16, 16), torch.float32)
            buf5 = empty_strided_cuda((1, 16, 1, 1), (16, 1, 16, 16), torch.float32)
            buf6 = empty_strided_cuda((4, 16, 32, 32), (16384, 1024, 32, 1), torch.float32)
            # Topologically Sorted Source Nodes: [conv2d, batch_norm, y], Original ATen: [aten.convolution, aten._native_batch_norm_legit_functional, aten.relu, aten.copy_]
            # [Provenance debug handles] triton_red_fused__native_batch_norm_legit_functional_convolution_copy__relu_0:2
            raw_stream0 = get_raw_stream(0)
            triton_red_fused__native_batch_norm_legit_functional_convolution_copy__relu_0.run(buf1, primals_2, primals_6, primals_5, primals_7, primals_8, buf2, buf5, primals_6, primals_5, buf6, 16, 4096, stream=raw_stream0)
            del primals_2
            del primals_5
            del primals_6
            del primals_8
            assert_size_stride(primals_9, (16, 16, 3, 3), (144, 9, 3, 1), 'input')
            # Topologically Sorted Source Nodes: [conv2d_1], Original ATen: [aten.convolution]
            # [Provenance debug handles] extern_kernels.convolution:3
            buf7 = extern_kernels.convolution(buf6, primals_9, stride=(1, 1), padding=(1, 1), dilation=(1, 1), transposed=False, output_padding=(0, 0), groups=1, bias=None)
            assert_size_stride(buf7, (4, 16, 32, 32), (16384, 1024, 32, 1), 'torch.ops.aten.convolution.default')
            assert_size_stride(primals_10, (16, ), (1, ), 'input')
            buf8 = buf7; del buf7  # reuse
            buf12 = empty_strided_cuda((4, 16, 32, 32), (16384, 1024, 32, 1), torch.bool)
            # Topologically Sorted Source Nodes: [conv2d_1, add, y_1, le], Original ATen: [aten.convolution, aten.add, aten.relu, aten.threshold_backward]
            # [Provenance debug handles] triton_poi_fused_add_convolution_relu_threshold_backward_1:4
            raw_stream0 = get_raw_stream(0)
            triton_poi_fused_add_convolution_relu_threshold_backward_1.run(buf8, primals_10, buf6, buf12, 65536, stream=raw_stream0)
            del primals_10
            buf9 = empty_strided_cuda((4, 16, 8, 8), (1024, 64, 8, 1), torch.float32)
            buf10 = empty_strided_cuda((4, 16, 8, 8), (1024, 64, 8, 1), torch.int8)
            # Topologically Sorted Source Nodes: [conv2d_1, add, y_1, max_pool2d], Original ATen: [aten.convolution, aten.add, aten.relu, aten.max_pool2d_with_indices]
            # [Provenance debug handles] triton_poi_fused_add_convolution_max_pool2d_with_indices_relu_2:5
            raw_stream0 = get_raw_stream(0)
            triton_poi_fused_add_convolution_max_pool2d_with_indices_relu_2.run(buf8, buf9, buf10, 4096, stream=raw_stream0)
            del buf8
            assert_size_stride(primals_12, (10, ), (1, ), 'input')
            assert_size_stride(primals_11, (10, 1024), (1024, 1), 'input')
            buf11 = empty_strided_cuda((4, 10), (10, 1), torch.float32)
            # Topologically Sorted Source Nodes: [flatten, linear], Original ATen: [aten.view, aten.t, aten.addmm]
            # [Provenance debug handles] extern_kernels.addmm:6
            extern_kernels.addmm(primals_12, reinterpret_tensor(buf9, (4, 1024), (1024, 1), 0), reinterpret_tensor(primals_11, (1024, 10), (1, 1024), 0), alpha=1, beta=1, out=buf11)
            del primals_12
            assert_size_stride(primals_4, (), (), 'input')
            # Topologically Sorted Source Nodes: [add_], Original ATen: [aten.add, aten.copy_]
            # [Provenance debug handles] triton_poi_fused_add_copy__3:7
            raw_stream0 = get_raw_stream(0)
            triton_poi_fused_add_copy__3.run(primals_4, primals_4, 1, stream=raw_stream0)
            del primals_4
        return (buf11, primals_1, primals_3, primals_7, primals_9, primals_11, buf1, reinterpret_tensor(buf5, (16, ), (1, ), 0), buf6, buf10, reinterpret_tensor(buf9, (4, 1024), (1024, 1), 0), buf12, reinterpret_tensor(buf2, (1, 16, 1, 1), (16, 1, 1, 1), 0), )

runner = Runner(partitions=[])
call = runner.call
recursively_apply_fns = runner.recursively_apply_fns


def get_args():
    from torch._dynamo.testing import rand_strided
    primals_1 = rand_strided((16, 3, 3, 3), (27, 9, 3, 1), device='cuda:0', dtype=torch.float32)
    primals_2 = rand_strided((16, ), (1, ), device='cuda:0', dtype=torch.float32)
    primals_3 = rand_strided((4, 3, 32, 32), (3072, 1024, 32, 1), device='cuda:0', dtype=torch.float32)
    primals_4 = rand_strided((), (), device='cuda:0', dtype=torch.int64)
    primals_5 = rand_strided((16, ), (1, ), device='cuda:0', dtype=torch.float32)
    primals_6 = rand_strided((16, ), (1, ), device='cuda:0', dtype=torch.float32)
    primals_7 = rand_strided((16, ), (1, ), device='cuda:0', dtype=torch.float32)
    primals_8 = rand_strided((16, ), (1, ), device='cuda:0', dtype=torch.float32)
    primals_9 = rand_strided((16, 16, 3, 3), (144, 9, 3, 1), device='cuda:0', dtype=torch.float32)
    primals_10 = rand_strided((16, ), (1, ), device='cuda:0', dtype=torch.float32)
    primals_11 = rand_strided((10, 1024), (1024, 1), device='cuda:0', dtype=torch.float32)
    primals_12 = rand_strided((10, ), (1, ), device='cuda:0', dtype=torch.float32)
    return [primals_1, primals_2, primals_3, primals_4, primals_5, primals_6, primals_7, primals_8, primals_9, primals_10, primals_11, primals_12]


def benchmark_compiled_module(args, times=10, repeat=10):
    from torch._inductor.utils import print_performance
    fn = lambda: call(list(args))
    return print_performance(fn, times=times, repeat=repeat, device='cuda')


if __name__ == "__main__":
    from torch._inductor.wrapper_benchmark import compiled_module_main
    args = get_args()
    compiled_module_main('None', lambda times, repeat: benchmark_compiled_module(args, times=times, repeat=repeat))
