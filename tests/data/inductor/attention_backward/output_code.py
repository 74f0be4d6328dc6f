# AOT ID: ['0_backward']
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


# kernel path: /tmp/cache/5h/c5hkkneem2olgjeuoybjxq34ubd4ocsygfsbirirx2nmzrs53yqm.py
# Topologically Sorted Source Nodes: [view_6, sum_1], Original ATen: [aten.view, aten.sum]
# Source node to ATen node mapping:
#   sum_1 => sum_1
#   view_6 => view_6
# Graph fragment:
#   %tangents_1 : Tensor "bf16[2, 64, 128][8192, 128, 1]cuda:0" = PlaceHolder[target=tangents_1]
#   %view_6 : Tensor "bf16[128, 128][128, 1]cuda:0"[num_users=3] = call_function[target=torch.ops.aten.reshape.default](args = (%tangents_1, [128, 128]), kwargs = {})
#   %sum_1 : Tensor "bf16[1, 128][128, 1]cuda:0"[num_users=1] = call_function[target=torch.ops.aten.sum.dim_IntList](args = (%view_6, [0], True), kwargs = {})
#   return %sum_1
triton_red_fused_sum_view_0 = async_compile.triton('triton_red_fused_sum_view_0', '''
import triton
import triton.language as tl

from torch._inductor.runtime import triton_helpers, triton_heuristics
from torch._inductor.runtime.triton_helpers import libdevice, math as tl_math
from torch._inductor.runtime.hints import AutotuneHint, ReductionHint, TileHint, DeviceProperties
triton_helpers.set_driver_to_gpu()

@triton_heuristics.reduction(
    size_hints={'x': 128, 'r0_': 128},
    reduction_hint=ReductionHint.OUTER,
    filename=__file__,
    triton_meta={'signature': {'in_ptr0': '*bf16', 'out_ptr0': '*bf16', 'xnumel': 'i32', 'r0_numel': 'i32', 'XBLOCK': 'constexpr', 'R0_BLOCK': 'constexpr'}, 'device': DeviceProperties(type='cuda', index=0, multi_processor_count=132, cc=90, major=9, regs_per_multiprocessor=65536, max_threads_per_multi_processor=2048, max_threads_per_block=1024, warp_size=32), 'constants': {}, 'native_matmul': False, 'enable_fp_fusion': True, 'launch_pdl': False, 'disable_ftz': False, 'configs': [{(0,): [['tt.divisibility', 16]], (1,): [['tt.divisibility', 16]], (2,): [['tt.divisibility', 16]], (3,): [['tt.divisibility', 16]]}]},
    inductor_meta={'grid_type': 'Grid1D', 'kernel_name': 'triton_red_fused_sum_view_0', 'mutated_arg_names': [], 'optimize_mem': True, 'no_x_dim': False, 'atomic_add_found': False, 'num_load': 1, 'num_store': 1, 'num_reduction': 1, 'autotune_hints': set(), 'tiling_scores': {'x': 33280, 'r0_': 0}, 'backend_hash': 'A7974629523B4D795A8C0C90B2297822F17759D8C9C132184692A517F69FBE14', 'assert_indirect_indexing': True, 'autotune_local_cache': True, 'autotune_pointwise': True, 'autotune_remote_cache': None, 'force_disable_caches': False, 'dynamic_scale_rblock': True, 'incremental_autotune': False, 'max_autotune': False, 'max_autotune_pointwise': False, 'min_split_scan_rblock': 256, 'spill_threshold': 16, 'store_cubin': False, 'deterministic': False, 'batch_invariant': False, 'force_filter_reduction_configs': False, 'mix_order_reduction_allow_multi_stages': True, 'dynamic_disable_pipelining': True, 'are_deterministic_algorithms_enabled': False}
)
@triton.jit
def triton_red_fused_sum_view_0(in_ptr0, out_ptr0, xnumel, r0_numel, XBLOCK : tl.constexpr, R0_BLOCK : tl.constexpr):
    xnumel = 128
    r0_numel = 128
    rnumel = r0_numel
    RBLOCK: tl.constexpr = R0_BLOCK
    xoffset = tl.program_id(0) * XBLOCK
    xindex = xoffset + tl.arange(0, XBLOCK)[:, None]
    xmask = xindex < xnumel
    r0_base = tl.arange(0, R0_BLOCK)[None, :]
    rbase = r0_base
    x0 = xindex
    _tmp2 = tl.full([XBLOCK, R0_BLOCK], 0, tl.float32)
    for r0_offset in tl.range(0, r0_numel, R0_BLOCK):
        r0_index = r0_offset + r0_base
        r0_mask = r0_index < r0_numel
        roffset = r0_offset
        rindex = r0_index
        r0_1 = r0_index
        tmp0 = tl.load(in_ptr0 + (x0 + 128*r0_1), r0_mask & xmask, eviction_policy='evict_first', other=0.0).to(tl.float32)
        tmp1 = tl.broadcast_to(tmp0, [XBLOCK, R0_BLOCK])
        tmp3 = _tmp2 + tmp1
        _tmp2 = tl.where(r0_mask & xmask, tmp3, _tmp2)
    tmp2 = tl.sum(_tmp2, 1)[:, None]
    tl.store(out_ptr0 + (x0), tmp2, xmask)
''', device_str='cuda')


# kernel path: /tmp/cache/ku/ckuco7p6cfxsv7a5ukqhcwvyt3dw3xkkdbejnobl2jfgebs5rchz.py
# Topologically Sorted Source Nodes: [view_14, clone_1, clone_3, mul_3, mul_4, layer_norm, mul_6, sub_2, sub_3, div, mul_7, convert_element_type_20, add_3, convert_element_type_23, ge, lt, bitwise_and, ne, bitwise_and_1, unsqueeze, full, _unsafe_masked_index_put_accumulate], Original ATen: [aten.view, aten.native_layer_norm_backward, aten.native_layer_norm, aten.add, aten.embedding_dense_backward]
# Source node to ATen node mapping:
#   _unsafe_masked_index_put_accumulate => _unsafe_masked_index_put_accumulate
#   add_3 => add_3
#   bitwise_and => bitwise_and
#   bitwise_and_1 => bitwise_and_1
#   clone_1 => convert_element_type_16
#   clone_3 => convert_element_type_18
#   convert_element_type_20 => convert_element_type_20
#   convert_element_type_23 => convert_element_type_23
#   div => div
#   full => full_default
#   ge => ge
#   layer_norm => convert_element_type, mul, sub
#   lt => lt
#   mul_3 => mul_3
#   mul_4 => mul_4
#   mul_6 => mul_6
#   mul_7 => mul_7
#   ne => ne
#   sub_2 => sub_2
#   sub_3 => sub_3
#   unsqueeze => unsqueeze
#   view_14 => view_14
# Graph fragment:
#   %view_14 : Tensor "bf16[2, 64, 128][8192, 128, 1]cuda:0"[num_users=1] = call_function[target=torch.ops.aten.reshape.default](args = (%mm_2, [2, 64, 128]), kwargs = {})
#   %convert_element_type_16 : Tensor "f32[2, 64, 128][8192, 128, 1]cuda:0"[num_users=3] = call_function[target=torch.ops.prims.convert_element_type.default](args = (%view_14, torch.float32), kwargs = {})
#   %convert_element_type_18 : Tensor "f32[128][1]cuda:0"[num_users=1] = call_function[target=torch.ops.prims.convert_element_type.default](args = (%primals_3, torch.float32), kwargs = {})
#   %mul_3 : Tensor "f32[2, 64, 128][8192, 128, 1]cuda:0"[num_users=3] = call_function[target=torch.ops.aten.mul.Tensor](args = (%convert_element_type_16, %convert_element_type_18), kwargs = {})
#   %mul_4 : Tensor "f32[2, 64, 128][8192, 128, 1]cuda:0"[num_users=1] = call_function[target=torch.ops.aten.mul.Tensor](args = (%mul_3, 128), kwargs = {})
#   %convert_element_type : Tensor "f32[2, 64, 128][8192, 128, 1]cuda:0"[num_users=1] = call_function[target=torch.ops.prims.convert_element_type.default](args = (%embedding, torch.float32), kwargs = {})
#   %sub : Tensor "f32[2, 64, 128][8192, 128, 1]cuda:0"[num_users=1] = call_function[target=torch.ops.aten.sub.Tensor](args = (%convert_element_type, %getitem_1), kwargs = {})
#   %mul : Tensor "f32[2, 64, 128][8192, 128, 1]cuda:0"[num_users=3] = call_function[target=torch.ops.aten.mul.Tensor](args = (%sub, %rsqrt), kwargs = {})
#   %mul_6 : Tensor "f32[2, 64, 128][8192, 128, 1]cuda:0"[num_users=1] = call_function[target=torch.ops.aten.mul.Tensor](args = (%mul, %sum_4), kwargs = {})
#   %sub_2 : Tensor "f32[2, 64, 128][8192, 128, 1]cuda:0"[num_users=1] = call_function[target=torch.ops.aten.sub.Tensor](args = (%mul_4, %sum_3), kwargs = {})
#   %sub_3 : Tensor "f32[2, 64, 128][8192, 128, 1]cuda:0"[num_users=1] = call_function[target=torch.ops.aten.sub.Tensor](args = (%sub_2, %mul_6), kwargs = {})
#   %div : Tensor "f32[2, 64, 1][64, 1, 1]cuda:0"[num_users=1] = call_function[target=torch.ops.aten.div.Tensor](args = (%rsqrt, 128), kwargs = {})
#   %mul_7 : Tensor "f32[2, 64, 128][8192, 128, 1]cuda:0"[num_users=1] = call_function[target=torch.ops.aten.mul.Tensor](args = (%div, %sub_3), kwargs = {})
#   %convert_element_type_20 : Tensor "bf16[2, 64, 128][8192, 128, 1]cuda:0"[num_users=1] = call_function[target=torch.ops.prims.convert_element_type.default](args = (%mul_7, torch.bfloat16), kwargs = {})
#   %add_3 : Tensor "bf16[2, 64, 128][8192, 128, 1]cuda:0"[num_users=1] = call_function[target=torch.ops.aten.add.Tensor](args = (%tangents_1, %convert_element_type_20), kwargs = {})
#   %convert_element_type_23 : Tensor "f32[2, 64, 128][8192, 128, 1]cuda:0"[num_users=1] = call_function[target=torch.ops.prims.convert_element_type.default](args = (%add_3, torch.float32), kwargs = {})
#   %ge : Tensor "b8[2, 64][64, 1]cuda:0"[num_users=1] = call_function[target=torch.ops.aten.ge.Scalar](args = (%primals_2, 0), kwargs = {})
#   %lt : Tensor "b8[2, 64][64, 1]cuda:0"[num_users=1] = call_function[target=torch.ops.aten.lt.Scalar](args = (%primals_2, 100), kwargs = {})
#   %bitwise_and : Tensor "b8[2, 64][64, 1]cuda:0"[num_users=1] = call_function[target=torch.ops.aten.bitwise_and.Tensor](args = (%ge, %lt), kwargs = {})
#   %ne : Tensor "b8[2, 64][64, 1]cuda:0"[num_users=1] = call_function[target=torch.ops.aten.ne.Scalar](args = (%primals_2, -1), kwargs = {})
#   %bitwise_and_1 : Tensor "b8[2, 64][64, 1]cuda:0"[num_users=1] = call_function[target=torch.ops.aten.bitwise_and.Tensor](args = (%bitwise_and, %ne), kwargs = {})
#   %unsqueeze : Tensor "b8[2, 64, 1][64, 1, 1]cuda:0"[num_users=1] = call_function[target=torch.ops.aten.unsqueeze.default](args = (%bitwise_and_1, -1), kwargs = {})
#   %full_default : Tensor "f32[100, 128][128, 1]cuda:0"[num_users=1] = call_function[target=torch.ops.aten.full.default](args = ([100, 128], 0), kwargs = {dtype: torch.float32, layout: torch.strided, device: cuda:0, pin_memory: False})
#   %_unsafe_masked_index_put_accumulate : Tensor "f32[100, 128][128, 1]cuda:0"[num_users=1] = call_function[target=torch.ops.aten._unsafe_masked_index_put_accumulate.default](args = (%full_default, %unsqueeze, [%primals_2], %convert_element_type_23), kwargs = {})
#   return %_unsafe_masked_index_put_accumulate
triton_poi_fused_add_embedding_dense_backward_native_layer_norm_native_layer_norm_backward_view_1 = async_compile.triton('triton_poi_fused_add_embedding_dense_backward_native_layer_norm_native_layer_norm_backward_view_1', '''
import triton
import triton.language as tl

from torch._inductor.runtime import triton_helpers, triton_heuristics
from torch._inductor.runtime.triton_helpers import libdevice, math as tl_math
from torch._inductor.runtime.hints import AutotuneHint, ReductionHint, TileHint, DeviceProperties
triton_helpers.set_driver_to_gpu()

@triton_heuristics.pointwise(
    size_hints={'x': 16384}, 
    filename=__file__,
    triton_meta={'signature': {'out_ptr0': '*fp32', 'xnumel': 'i32', 'XBLOCK': 'constexpr'}, 'device': DeviceProperties(type='cuda', index=0, multi_processor_count=132, cc=90, major=9, regs_per_multiprocessor=65536, max_threads_per_multi_processor=2048, max_threads_per_block=1024, warp_size=32), 'constants': {}, 'native_matmul': False, 'enable_fp_fusion': True, 'launch_pdl': False, 'disable_ftz': False, 'configs': [{(0,): [['tt.divisibility', 16]], (1,): [['tt.divisibility', 16]]}]},
    inductor_meta={'grid_type': 'Grid1D', 'kernel_name': 'triton_poi_fused_add_embedding_dense_backward_native_layer_norm_native_layer_norm_backward_view_1', 'mutated_arg_names': [], 'optimize_mem': True, 'no_x_dim': False, 'atomic_add_found': False, 'num_load': 0, 'num_store': 1, 'num_reduction': 0, 'autotune_hints': set(), 'tiling_scores': {'x': 102400}, 'backend_hash': 'A7974629523B4D795A8C0C90B2297822F17759D8C9C132184692A517F69FBE14', 'assert_indirect_indexing': True, 'autotune_local_cache': True, 'autotune_pointwise': True, 'autotune_remote_cache': None, 'force_disable_caches': False, 'dynamic_scale_rblock': True, 'incremental_autotune': False, 'max_autotune': False, 'max_autotune_pointwise': False, 'min_split_scan_rblock': 256, 'spill_threshold': 16, 'store_cubin': False, 'deterministic': False, 'batch_invariant': False, 'force_filter_reduction_configs': False, 'mix_order_reduction_allow_multi_stages': True, 'dynamic_disable_pipelining': True, 'are_deterministic_algorithms_enabled': False},
    min_elem_per_thread=0
)
@triton.jit
def triton_poi_fused_add_embedding_dense_backward_native_layer_norm_native_layer_norm_backward_view_1(out_ptr0, xnumel, XBLOCK : tl.constexpr):
    xnumel = 12800
    xoffset = tl.program_id(0) * XBLOCK
    xindex = xoffset + tl.arange(0, XBLOCK)[:]
    xmask = xindex < xnumel
    x0 = xindex
    tmp0 = tl.full([1], 0.0, tl.float32)
    tl.store(out_ptr0 + (x0), tmp0, xmask)
''', device_str='cuda')


# kernel path: /tmp/cache/nv/cnvhqh4w5o73jozwy2hnniz3u4myuqaezcj6msxpiy2bgs4ftw6t.py
# Topologically Sorted Source Nodes: [cat, view_10, permute_9, clone], Original ATen: [aten.stack, aten.permute, aten.clone]
# Source node to ATen node mapping:
#   cat => cat
#   clone => clone
#   permute_9 => permute_9
#   view_10 => view_10
# Graph fragment:
#   %getitem_14 : Tensor "bf16[2, 4, 64, 32][8192, 32, 128, 1]cuda:0" = PlaceHolder[target=getitem_14]
#   %getitem_15 : Tensor "bf16[2, 4, 64, 32][8192, 32, 128, 1]cuda:0" = PlaceHolder[target=getitem_15]
#   %getitem_16 : Tensor "bf16[2, 4, 64, 32][8192, 32, 128, 1]cuda:0" = PlaceHolder[target=getitem_16]
#   %cat : Tensor "bf16[6, 4, 64, 32][8192, 2048, 32, 1]cuda:0"[num_users=1] = call_function[target=torch.ops.aten.cat.default](args = ([%getitem_14, %getitem_15, %getitem_16],), kwargs = {})
#   %view_10 : Tensor "bf16[3, 2, 4, 64, 32][16384, 8192, 2048, 32, 1]cuda:0"[num_users=1] = call_function[target=torch.ops.aten.reshape.default](args = (%cat, [3, 2, 4, 64, 32]), kwargs = {})
#   %permute_9 : Tensor "bf16[2, 64, 3, 4, 32][8192, 32, 16384, 2048, 1]cuda:0"[num_users=1] = call_function[target=torch.ops.aten.permute.default](args = (%view_10, [1, 3, 0, 2, 4]), kwargs = {})
#   %clone : Tensor "bf16[2, 64, 3, 4, 32][24576, 384, 128, 32, 1]cuda:0"[num_users=1] = call_function[target=torch.ops.aten.clone.default](args = (%permute_9,), kwargs = {memory_format: torch.contiguous_format})
#   return %clone
triton_poi_fused_clone_permute_stack_2 = async_compile.triton('triton_poi_fused_clone_permute_stack_2', '''
import triton
import triton.language as tl

from torch._inductor.runtime import triton_helpers, triton_heuristics
from torch._inductor.runtime.triton_helpers import libdevice, math as tl_math
from torch._inductor.runtime.hints import AutotuneHint, ReductionHint, TileHint, DeviceProperties
triton_helpers.set_driver_to_gpu()

@triton_heuristics.pointwise(
    size_hints={'x': 65536}, 
    filename=__file__,
    triton_meta={'signature': {'in_ptr0': '*bf16', 'in_ptr1': '*bf16', 'in_ptr2': '*bf16', 'out_ptr0': '*bf16', 'xnumel': 'i32', 'XBLOCK': 'constexpr'}, 'device': DeviceProperties(type='cuda', index=0, multi_processor_count=132, cc=90, major=9, regs_per_multiprocessor=65536, max_threads_per_multi_processor=2048, max_threads_per_block=1024, warp_size=32), 'constants': {}, 'native_matmul': False, 'enable_fp_fusion': True, 'launch_pdl': False, 'disable_ftz': False, 'configs': [{(0,): [['tt.divisibility', 16]], (1,): [['tt.divisibility', 16]], (2,): [['tt.divisibility', 16]], (3,): [['tt.divisibility', 16]], (4,): [['tt.divisibility', 16]]}]},
    inductor_meta={'grid_type': 'Grid1D', 'kernel_name': 'triton_poi_fused_clone_permute_stack_2', 'mutated_arg_names': [], 'optimize_mem': True, 'no_x_dim': False, 'atomic_add_found': False, 'num_load': 3, 'num_store': 1, 'num_reduction': 0, 'autotune_hints': set(), 'tiling_scores': {'x': 294912}, 'backend_hash': 'A7974629523B4D795A8C0C90B2297822F17759D8C9C132184692A517F69FBE14', 'assert_indirect_indexing': True, 'autotune_local_cache': True, 'autotune_pointwise': True, 'autotune_remote_cache': None, 'force_disable_caches': False, 'dynamic_scale_rblock': True, 'incremental_autotune': False, 'max_autotune': False, 'max_autotune_pointwise': False, 'min_split_scan_rblock': 256, 'spill_threshold': 16, 'store_cubin': False, 'deterministic': False, 'batch_invariant': False, 'force_filter_reduction_configs': False, 'mix_order_reduction_allow_multi_stages': True, 'dynamic_disable_pipelining': True, 'are_deterministic_algorithms_enabled': False},
    min_elem_per_thread=0
)
@triton.jit
def triton_poi_fused_clone_permute_stack_2(in_ptr0, in_ptr1, in_ptr2, out_ptr0, xnumel, XBLOCK : tl.constexpr):
    xnumel = 49152
    xoffset = tl.program_id(0) * XBLOCK
    xindex = xoffset + tl.arange(0, XBLOCK)[:]
    xmask = tl.full([XBLOCK], True, tl.int1)[:]
    x5 = xindex // 8192
    x2 = ((xindex // 8192) % 2)
    x3 = xindex // 16384
    x4 = (xindex % 8192)
    x0 = (xindex % 128)
    x6 = ((xindex // 128) % 128)
    tmp0 = (x5).to(tl.int32)
    tmp1 = tl.full([1], 0, tl.int64)
    tmp2 = tmp0 >= tmp1
    tmp3 = (x5).to(tl.int64)
    tmp4 = (tmp3).to(tl.int64)
    tmp5 = tl.full([1], 2, tl.int64)
    tmp6 = tmp4 < tmp5
    tmp7 = tl.load(in_ptr0 + (x4 + 8192*(x2 + 2*x3)), tmp6, other=0.0).to(tl.float32)
    tmp8 = tmp4 >= tmp5
    tmp9 = tl.full([1], 4, tl.int64)
    tmp10 = tmp4 < tmp9
    tmp11 = tmp8 & tmp10
    tmp12 = tl.load(in_ptr1 + (x4 + 8192*((-2) + x2 + 2*x3)), tmp11, other=0.0).to(tl.float32)
    tmp13 = tmp0 >= tmp9
    tmp14 = tl.full([1], 6, tl.int64)
    tmp15 = tmp0 < tmp14
    tmp16 = tl.load(in_ptr2 + (x4 + 8192*((-4) + x2 + 2*x3)), tmp13, other=0.0).to(tl.float32)
    tmp17 = tl.where(tmp11, tmp12, tmp16)
    tmp18 = tl.where(tmp6, tmp7, tmp17)
    tl.store(out_ptr0 + (x0 + 128*x3 + 384*x6), tmp18, None)
''', device_str='cuda')


# kernel path: /tmp/cache/6e/c6eruto5s7sgsc5baze4nymvkj34hn7tjvy4t6wealuuimn52mie.py
# Topologically Sorted Source Nodes: [view_14, clone_1, layer_norm, mul_8, sum_5, sum_6, convert_element_type_21, convert_element_type_22], Original ATen: [aten.view, aten.native_layer_norm_backward, aten.native_layer_norm]
# Source node to ATen node mapping:
#   clone_1 => convert_element_type_16
#   convert_element_type_21 => convert_element_type_21
#   convert_element_type_22 => convert_element_type_22
#   layer_norm => convert_element_type, mul, sub
#   mul_8 => mul_8
#   sum_5 => sum_5
#   sum_6 => sum_6
#   view_14 => view_14
# Graph fragment:
#   %mm_2 : Tensor "bf16[128, 128][128, 1]cuda:0" = PlaceHolder[target=mm_2]
#   %embedding : Tensor "bf16[2, 64, 128][8192, 128, 1]cuda:0" = PlaceHolder[target=embedding]
#   %getitem_1 : Tensor "f32[2, 64, 1][64, 1, 1]cuda:0" = PlaceHolder[target=getitem_1]
#   %rsqrt : Tensor "f32[2, 64, 1][64, 1, 1]cuda:0" = PlaceHolder[target=rsqrt]
#   %sum_5 : Tensor "f32[128][1]cuda:0" = PlaceHolder[target=sum_5]
#   %sum_6 : Tensor "f32[128][1]cuda:0" = PlaceHolder[target=sum_6]
#   %view_14 : Tensor "bf16[2, 64, 128][8192, 128, 1]cuda:0"[num_users=1] = call_function[target=torch.ops.aten.reshape.default](args = (%mm_2, [2, 64, 128]), kwargs = {})
#   %convert_element_type_16 : Tensor "f32[2, 64, 128][8192, 128, 1]cuda:0"[num_users=3] = call_function[target=torch.ops.prims.convert_element_type.default](args = (%view_14, torch.float32), kwargs = {})
#   %convert_element_type : Tensor "f32[2, 64, 128][8192, 128, 1]cuda:0"[num_users=1] = call_function[target=torch.ops.prims.convert_element_type.default](args = (%embedding, torch.float32), kwargs = {})
#   %sub : Tensor "f32[2, 64, 128][8192, 128, 1]cuda:0"[num_users=1] = call_function[target=torch.ops.aten.sub.Tensor](args = (%convert_element_type, %getitem_1), kwargs = {})
#   %mul : Tensor "f32[2, 64, 128][8192, 128, 1]cuda:0"[num_users=3] = call_function[target=torch.ops.aten.mul.Tensor](args = (%sub, %rsqrt), kwargs = {})
#   %mul_8 : Tensor "f32[2, 64, 128][8192, 128, 1]cuda:0"[num_users=1] = call_function[target=torch.ops.aten.mul.Tensor](args = (%convert_element_type_16, %mul), kwargs = {})
#   %sum_5 : Tensor "f32[128][1]cuda:0"[num_users=1] = call_function[target=torch.ops.aten.sum.dim_IntList](args = (%mul_8, [0, 1]), kwargs = {})
#   %sum_6 : Tensor "f32[128][1]cuda:0"[num_users=1] = call_function[target=torch.ops.aten.sum.dim_IntList](args = (%convert_element_type_16, [0, 1]), kwargs = {})
#   %convert_element_type_21 : Tensor "bf16[128][1]cuda:0"[num_users=1] = call_function[target=torch.ops.prims.convert_element_type.default](args = (%sum_5, torch.bfloat16), kwargs = {})
#   %convert_element_type_22 : Tensor "bf16[128][1]cuda:0"[num_users=1] = call_function[target=torch.ops.prims.convert_element_type.default](args = (%sum_6, torch.bfloat16), kwargs = {})
#   return %sum_5,%sum_6,%convert_element_type_21,%convert_element_type_22
triton_red_fused_native_layer_norm_native_layer_norm_backward_view_3 = async_compile.triton('triton_red_fused_native_layer_norm_native_layer_norm_backward_view_3', '''
import triton
import triton.language as tl

from torch._inductor.runtime import triton_helpers, triton_heuristics
from torch._inductor.runtime.triton_helpers import libdevice, math as tl_math
from torch._inductor.runtime.hints import AutotuneHint, ReductionHint, TileHint, DeviceProperties
triton_helpers.set_driver_to_gpu()

@triton_heuristics.reduction(
    size_hints={'x': 128, 'r0_': 128},
    reduction_hint=ReductionHint.OUTER,
    filename=__file__,
    triton_meta={'signature': {'in_ptr0': '*bf16', 'in_ptr1': '*bf16', 'in_ptr2': '*fp32', 'in_ptr3': '*fp32', 'out_ptr2': '*bf16', 'out_ptr3': '*bf16', 'xnumel': 'i32', 'r0_numel': 'i32', 'XBLOCK': 'constexpr', 'R0_BLOCK': 'constexpr'}, 'device': DeviceProperties(type='cuda', index=0, multi_processor_count=132, cc=90, major=9, regs_per_multiprocessor=65536, max_threads_per_multi_processor=2048, max_threads_per_block=1024, warp_size=32), 'constants': {}, 'native_matmul': False, 'enable_fp_fusion': True, 'launch_pdl': False, 'disable_ftz': False, 'configs': [{(0,): [['tt.divisibility', 16]], (1,): [['tt.divisibility', 16]], (2,): [['tt.divisibility', 16]], (3,): [['tt.divisibility', 16]], (4,): [['tt.divisibility', 16]], (5,): [['tt.divisibility', 16]], (6,): [['tt.divisibility', 16]], (7,): [['tt.divisibility', 16]]}]},
    inductor_meta={'grid_type': 'Grid1D', 'kernel_name': 'triton_red_fused_native_layer_norm_native_layer_norm_backward_view_3', 'mutated_arg_names': [], 'optimize_mem': True, 'no_x_dim': False, 'atomic_add_found': False, 'num_load': 4, 'num_store': 2, 'num_reduction': 2, 'autotune_hints': set(), 'tiling_scores': {'x': 66560, 'r0_': 1024}, 'backend_hash': 'A7974629523B4D795A8C0C90B2297822F17759D8C9C132184692A517F69FBE14', 'assert_indirect_indexing': True, 'autotune_local_cache': True, 'autotune_pointwise': True, 'autotune_remote_cache': None, 'force_disable_caches': False, 'dynamic_scale_rblock': True, 'incremental_autotune': False, 'max_autotune': False, 'max_autotune_pointwise': False, 'min_split_scan_rblock': 256, 'spill_threshold': 16, 'store_cubin': False, 'deterministic': False, 'batch_invariant': False, 'force_filter_reduction_configs': False, 'mix_order_reduction_allow_multi_stages': True, 'dynamic_disable_pipelining': True, 'are_deterministic_algorithms_enabled': False}
)
@triton.jit
def triton_red_fused_native_layer_norm_native_layer_norm_backward_view_3(in_ptr0, in_ptr1, in_ptr2, in_ptr3, out_ptr2, out_ptr3, xnumel, r0_numel, XBLOCK : tl.constexpr, R0_BLOCK : tl.constexpr):
    xnumel = 128
    r0_numel = 128
    rnumel = r0_numel
    RBLOCK: tl.constexpr = R0_BLOCK
    xoffset = tl.program_id(0) * XBLOCK
    xindex = xoffset + tl.arange(0, XBLOCK)[:, None]
    xmask = xindex < xnumel
    r0_base = tl.arange(0, R0_BLOCK)[None, :]
    rbase = r0_base
    x0 = xindex
    _tmp10 = tl.full([XBLOCK, R0_BLOCK], 0, tl.float32)
    _tmp13 = tl.full([XBLOCK, R0_BLOCK], 0, tl.float32)
    for r0_offset in tl.range(0, r0_numel, R0_BLOCK):
        r0_index = r0_offset + r0_base
        r0_mask = r0_index < r0_numel
        roffset = r0_offset
        rindex = r0_index
        r0_1 = r0_index
        tmp0 = tl.load(in_ptr0 + (x0 + 128*r0_1), r0_mask & xmask, eviction_policy='evict_first', other=0.0).to(tl.float32)
        tmp2 = tl.load(in_ptr1 + (x0 + 128*r0_1), r0_mask & xmask, eviction_policy='evict_first', other=0.0).to(tl.float32)
        tmp4 = tl.load(in_ptr2 + (r0_1), r0_mask, eviction_policy='evict_last', other=0.0)
        tmp6 = tl.load(in_ptr3 + (r0_1), r0_mask, eviction_policy='evict_last', other=0.0)
        tmp1 = tmp0.to(tl.float32)
        tmp3 = tmp2.to(tl.float32)
        tmp5 = tmp3 - tmp4
        tmp7 = tmp5 * tmp6
        tmp8 = tmp1 * tmp7
        tmp9 = tl.broadcast_to(tmp8, [XBLOCK, R0_BLOCK])
        tmp11 = _tmp10 + tmp9
        _tmp10 = tl.where(r0_mask & xmask, tmp11, _tmp10)
        tmp12 = tl.broadcast_to(tmp1, [XBLOCK, R0_BLOCK])
        tmp14 = _tmp13 + tmp12
        _tmp13 = tl.where(r0_mask & xmask, tmp14, _tmp13)
    tmp10 = tl.sum(_tmp10, 1)[:, None]
    tmp13 = tl.sum(_tmp13, 1)[:, None]
    tmp15 = tmp10.to(tl.float32)
    tmp16 = tmp13.to(tl.float32)
    tl.store(out_ptr2 + (x0), tmp15, xmask)
    tl.store(out_ptr3 + (x0), tmp16, xmask)
''', device_str='cuda')


# kernel path: /tmp/cache/c3/cc3q3gnvi3e57r6e5obxrlvcllau5spk6ky4pbfmoqhorrfnmpue.py
# Topologically Sorted Source Nodes: [view_14, clone_1, clone_3, mul_3, mul_4, sum_3, layer_norm, mul_5, sum_4, mul_6, sub_2, sub_3, div, mul_7, convert_element_type_20, add_3, convert_element_type_23, ge, lt, bitwise_and, ne, bitwise_and_1, unsqueeze, full, _unsafe_masked_index_put_accumulate], Original ATen: [aten.view, aten.native_layer_norm_backward, aten.native_layer_norm, aten.add, aten.embedding_dense_backward]
# Source node to ATen node mapping:
#   _unsafe_masked_index_put_accumulate => _unsafe_masked_index_put_accumulate
#   add_3 => add_3
#   bitwise_and => bitwise_and
#   bitwise_and_1 => bitwise_and_1
#   clone_1 => convert_element_type_16
#   clone_3 => convert_element_type_18
#   convert_element_type_20 => convert_element_type_20
#   convert_element_type_23 => convert_element_type_23
#   div => div
#   full => full_default
#   ge => ge
#   layer_norm => convert_element_type, mul, sub
#   lt => lt
#   mul_3 => mul_3
#   mul_4 => mul_4
#   mul_5 => mul_5
#   mul_6 => mul_6
#   mul_7 => mul_7
#   ne => ne
#   sub_2 => sub_2
#   sub_3 => sub_3
#   sum_3 => sum_3
#   sum_4 => sum_4
#   unsqueeze => unsqueeze
#   view_14 => view_14
# Graph fragment:
#   %mm_2 : Tensor "bf16[128, 128][128, 1]cuda:0" = PlaceHolder[target=mm_2]
#   %primals_3 : Tensor "bf16[128][1]cuda:0" = PlaceHolder[target=primals_3]
#   %embedding : Tensor "bf16[2, 64, 128][8192, 128, 1]cuda:0" = PlaceHolder[target=embedding]
#   %getitem_1 : Tensor "f32[2, 64, 1][64, 1, 1]cuda:0" = PlaceHolder[target=getitem_1]
#   %rsqrt : Tensor "f32[2, 64, 1][64, 1, 1]cuda:0" = PlaceHolder[target=rsqrt]
#   %primals_2 : Tensor "i64[2, 64][64, 1]cuda:0" = PlaceHolder[target=primals_2]
#   %tangents_1 : Tensor "bf16[2, 64, 128][8192, 128, 1]cuda:0" = PlaceHolder[target=tangents_1]
#   %sum_3 : Tensor "f32[2, 64, 1][64, 1, 128]cuda:0" = PlaceHolder[target=sum_3]
#   %sum_4 : Tensor "f32[2, 64, 1][64, 1, 128]cuda:0" = PlaceHolder[target=sum_4]
#   %_unsafe_masked_index_put_accumulate : Tensor "f32[100, 128][128, 1]cuda:0" = PlaceHolder[target=_unsafe_masked_index_put_accumulate]
#   %view_14 : Tensor "bf16[2, 64, 128][8192, 128, 1]cuda:0"[num_users=1] = call_function[target=torch.ops.aten.reshape.default](args = (%mm_2, [2, 64, 128]), kwargs = {})
#   %convert_element_type_16 : Tensor "f32[2, 64, 128][8192, 128, 1]cuda:0"[num_users=3] = call_function[target=torch.ops.prims.convert_element_type.default](args = (%view_14, torch.float32), kwargs = {})
#   %convert_element_type_18 : Tensor "f32[128][1]cuda:0"[num_users=1] = call_function[target=torch.ops.prims.convert_element_type.default](args = (%primals_3, torch.float32), kwargs = {})
#   %mul_3 : Tensor "f32[2, 64, 128][8192, 128, 1]cuda:0"[num_users=3] = call_function[target=torch.ops.aten.mul.Tensor](args = (%convert_element_type_16, %convert_element_type_18), kwargs = {})
#   %mul_4 : Tensor "f32[2, 64, 128][8192, 128, 1]cuda:0"[num_users=1] = call_function[target=torch.ops.aten.mul.Tensor](args = (%mul_3, 128), kwargs = {})
#   %sum_3 : Tensor "f32[2, 64, 1][64, 1, 1]cuda:0"[num_users=1] = call_function[target=torch.ops.aten.sum.dim_IntList](args = (%mul_3, [2], True), kwargs = {})
#   %convert_element_type : Tensor "f32[2, 64, 128][8192, 128, 1]cuda:0"[num_users=1] = call_function[target=torch.ops.prims.convert_element_type.default](args = (%embedding, torch.float32), kwargs = {})
#   %sub : Tensor "f32[2, 64, 128][8192, 128, 1]cuda:0"[num_users=1] = call_function[target=torch.ops.aten.sub.Tensor](args = (%convert_element_type, %getitem_1), kwargs = {})
#   %mul : Tensor "f32[2, 64, 128][8192, 128, 1]cuda:0"[num_users=3] = call_function[target=torch.ops.aten.mul.Tensor](args = (%sub, %rsqrt), kwargs = {})
#   %mul_5 : Tensor "f32[2, 64, 128][8192, 128, 1]cuda:0"[num_users=1] = call_function[target=torch.ops.aten.mul.Tensor](args = (%mul_3, %mul), kwargs = {})
#   %sum_4 : Tensor "f32[2, 64, 1][64, 1, 1]cuda:0"[num_users=1] = call_function[target=torch.ops.aten.sum.dim_IntList](args = (%mul_5, [2], True), kwargs = {})
#   %mul_6 : Tensor "f32[2, 64, 128][8192, 128, 1]cuda:0"[num_users=1] = call_function[target=torch.ops.aten.mul.Tensor](args = (%mul, %sum_4), kwargs = {})
#   %sub_2 : Tensor "f32[2, 64, 128][8192, 128, 1]cuda:0"[num_users=1] = call_function[target=torch.ops.aten.sub.Tensor](args = (%mul_4, %sum_3), kwargs = {})
#   %sub_3 : Tensor "f32[2, 64, 128][8192, 128, 1]cuda:0"[num_users=1] = call_function[target=torch.ops.aten.sub.Tensor](args = (%sub_2, %mul_6), kwargs = {})
#   %div : Tensor "f32[2, 64, 1][64, 1, 1]cuda:0"[num_users=1] = call_function[target=torch.ops.aten.div.Tensor](args = (%rsqrt, 128), kwargs = {})
#   %mul_7 : Tensor "f32[2, 64, 128][8192, 128, 1]cuda:0"[num_users=1] = call_function[target=torch.ops.aten.mul.Tensor](args = (%div, %sub_3), kwargs = {})
#   %convert_element_type_20 : Tensor "bf16[2, 64, 128][8192, 128, 1]cuda:0"[num_users=1] = call_function[target=torch.ops.prims.convert_element_type.default](args = (%mul_7, torch.bfloat16), kwargs = {})
#   %add_3 : Tensor "bf16[2, 64, 128][8192, 128, 1]cuda:0"[num_users=1] = call_function[target=torch.ops.aten.add.Tensor](args = (%tangents_1, %convert_element_type_20), kwargs = {})
#   %convert_element_type_23 : Tensor "f32[2, 64, 128][8192, 128, 1]cuda:0"[num_users=1] = call_function[target=torch.ops.prims.convert_element_type.default](args = (%add_3, torch.float32), kwargs = {})
#   %ge : Tensor "b8[2, 64][64, 1]cuda:0"[num_users=1] = call_function[target=torch.ops.aten.ge.Scalar](args = (%primals_2, 0), kwargs = {})
#   %lt : Tensor "b8[2, 64][64, 1]cuda:0"[num_users=1] = call_function[target=torch.ops.aten.lt.Scalar](args = (%primals_2, 100), kwargs = {})
#   %bitwise_and : Tensor "b8[2, 64][64, 1]cuda:0"[num_users=1] = call_function[target=torch.ops.aten.bitwise_and.Tensor](args = (%ge, %lt), kwargs = {})
#   %ne : Tensor "b8[2, 64][64, 1]cuda:0"[num_users=1] = call_function[target=torch.ops.aten.ne.Scalar](args = (%primals_2, -1), kwargs = {})
#   %bitwise_and_1 : Tensor "b8[2, 64][64, 1]cuda:0"[num_users=1] = call_function[target=torch.ops.aten.bitwise_and.Tensor](args = (%bitwise_and, %ne), kwargs = {})
#   %unsqueeze : Tensor "b8[2, 64, 1][64, 1, 1]cuda:0"[num_users=1] = call_function[target=torch.ops.aten.unsqueeze.default](args = (%bitwise_and_1, -1), kwargs = {})
#   %full_default : Tensor "f32[100, 128][128, 1]cuda:0"[num_users=1] = call_function[target=torch.ops.aten.full.default](args = ([100, 128], 0), kwargs = {dtype: torch.float32, layout: torch.strided, device: cuda:0, pin_memory: False})
#   %_unsafe_masked_index_put_accumulate : Tensor "f32[100, 128][128, 1]cuda:0"[num_users=1] = call_function[target=torch.ops.aten._unsafe_masked_index_put_accumulate.default](args = (%full_default, %unsqueeze, [%primals_2], %convert_element_type_23), kwargs = {})
#   return %sum_3,%sum_4,%buf18
triton_per_fused_add_embedding_dense_backward_native_layer_norm_native_layer_norm_backward_view_4 = async_compile.triton('triton_per_fused_add_embedding_dense_backward_native_layer_norm_native_layer_norm_backward_view_4', '''
import triton
import triton.language as tl

from torch._inductor.runtime import triton_helpers, triton_heuristics
from torch._inductor.runtime.triton_helpers import libdevice, math as tl_math
from torch._inductor.runtime.hints import AutotuneHint, ReductionHint, TileHint, DeviceProperties
triton_helpers.set_driver_to_gpu()

@triton_heuristics.persistent_reduction(
    size_hints={'x': 128, 'r0_': 128},
    reduction_hint=ReductionHint.INNER,
    filename=__file__,
    triton_meta={'signature': {'in_ptr0': '*bf16', 'in_ptr1': '*bf16', 'in_ptr2': '*bf16', 'in_ptr3': '*fp32', 'in_ptr4': '*fp32', 'in_ptr5': '*i64', 'in_ptr6': '*bf16', 'out_ptr2': '*fp32', 'xnumel': 'i32', 'r0_numel': 'i32', 'XBLOCK': 'constexpr'}, 'device': DeviceProperties(type='cuda', index=0, multi_processor_count=132, cc=90, major=9, regs_per_multiprocessor=65536, max_threads_per_multi_processor=2048, max_threads_per_block=1024, warp_size=32), 'constants': {}, 'native_matmul': False, 'enable_fp_fusion': True, 'launch_pdl': False, 'disable_ftz': False, 'configs': [{(0,): [['tt.divisibility', 16]], (1,): [['tt.divisibility', 16]], (2,): [['tt.divisibility', 16]], (3,): [['tt.divisibility', 16]], (4,): [['tt.divisibility', 16]], (5,): [['tt.divisibility', 16]], (6,): [['tt.divisibility', 16]], (7,): [['tt.divisibility', 16]], (8,): [['tt.divisibility', 16]], (9,): [['tt.divisibility', 16]]}]},
    inductor_meta={'grid_type': 'Grid1D', 'kernel_name': 'triton_per_fused_add_embedding_dense_backward_native_layer_norm_native_layer_norm_backward_view_4', 'mutated_arg_names': ['out_ptr2'], 'optimize_mem': True, 'no_x_dim': None, 'atomic_add_found': True, 'num_load': 7, 'num_store': 1, 'num_reduction': 2, 'autotune_hints': set(), 'tiling_scores': {'x': 2048, 'r0_': 98560}, 'backend_hash': 'A7974629523B4D795A8C0C90B2297822F17759D8C9C132184692A517F69FBE14', 'assert_indirect_indexing': True, 'autotune_local_cache': True, 'autotune_pointwise': True, 'autotune_remote_cache': None, 'force_disable_caches': False, 'dynamic_scale_rblock': True, 'incremental_autotune': False, 'max_autotune': False, 'max_autotune_pointwise': False, 'min_split_scan_rblock': 256, 'spill_threshold': 16, 'store_cubin': False, 'deterministic': False, 'batch_invariant': False, 'force_filter_reduction_configs': False, 'mix_order_reduction_allow_multi_stages': True, 'dynamic_disable_pipelining': True, 'are_deterministic_algorithms_enabled': False}
)
@triton.jit
def triton_per_fused_add_embedding_dense_backward_native_layer_norm_native_layer_norm_backward_view_4(in_ptr0, in_ptr1, in_ptr2, in_ptr3, in_ptr4, in_ptr5, in_ptr6, out_ptr2, xnumel, r0_numel, XBLOCK : tl.constexpr):
    xnumel = 128
    r0_numel = 128
    R0_BLOCK: tl.constexpr = 128
    rnumel = r0_numel
    RBLOCK: tl.constexpr = R0_BLOCK
    xoffset = tl.program_id(0) * XBLOCK
    xindex = xoffset + tl.arange(0, XBLOCK)[:, None]
    xmask = xindex < xnumel
    r0_index = tl.arange(0, R0_BLOCK)[None, :]
    r0_offset = 0
    r0_mask = tl.full([R0_BLOCK], True, tl.int1)[None, :]
    roffset = r0_offset
    rindex = r0_index
    r0_1 = r0_index
    x0 = xindex
    tmp0 = tl.load(in_ptr0 + (r0_1 + 128*x0), xmask, eviction_policy='evict_first', other=0.0).to(tl.float32)
    tmp2 = tl.load(in_ptr1 + (r0_1), None, eviction_policy='evict_last').to(tl.float32)
    tmp9 = tl.load(in_ptr2 + (r0_1 + 128*x0), xmask, eviction_policy='evict_first', other=0.0).to(tl.float32)
    tmp11 = tl.load(in_ptr3 + (x0), xmask, eviction_policy='evict_last')
    tmp13 = tl.load(in_ptr4 + (x0), xmask, eviction_policy='evict_last')
    tmp20 = tl.load(in_ptr5 + (x0), xmask, eviction_policy='evict_last')
    tmp37 = tl.load(in_ptr6 + (r0_1 + 128*x0), xmask, eviction_policy='evict_first', other=0.0).to(tl.float32)
    tmp1 = tmp0.to(tl.float32)
    tmp3 = tmp2.to(tl.float32)
    tmp4 = tmp1 * tmp3
    tmp5 = tl.broadcast_to(tmp4, [XBLOCK, R0_BLOCK])
    tmp7 = tl.where(xmask, tmp5, 0)
    tmp8 = tl.sum(tmp7, 1)[:, None].to(tl.float32)
    tmp10 = tmp9.to(tl.float32)
    tmp12 = tmp10 - tmp11
    tmp14 = tmp12 * tmp13
    tmp15 = tmp4 * tmp14
    tmp16 = tl.broadcast_to(tmp15, [XBLOCK, R0_BLOCK])
    tmp18 = tl.where(xmask, tmp16, 0)
    tmp19 = tl.sum(tmp18, 1)[:, None].to(tl.float32)
    tmp21 = tl.full([1, 1], 99, tl.int64)
    tmp22 = triton_helpers.minimum(tmp21, tmp20)
    tmp23 = tl.full([1, 1], -100, tl.int64)
    tmp24 = triton_helpers.maximum(tmp23, tmp22)
    tmp25 = (tl.full([1, 1], 100, tl.int32)).to(tl.int32)
    tmp26 = tmp24 + tmp25
    tmp27 = tmp24 < 0
    tmp28 = tl.where(tmp27, tmp26, tmp24)
    tmp29 = tl.full([1, 1], 0, tl.int64)
    tmp30 = tmp20 >= tmp29
    tmp31 = tl.full([1, 1], 100, tl.int64)
    tmp32 = tmp20 < tmp31
    tmp33 = tmp30 & tmp32
    tmp34 = tl.full([1, 1], -1, tl.int64)
    tmp35 = tmp20 != tmp34
    tmp36 = tmp33 & tmp35
    tmp38 = tl.full([1, 1], 0.0078125, tl.float32)
    tmp39 = tmp13 * tmp38
    tmp40 = tl.full([1, 1], 128.0, tl.float32)
    tmp41 = tmp4 * tmp40
    tmp42 = tmp41 - tmp8
    tmp43 = tmp14 * tmp19
    tmp44 = tmp42 - tmp43
    tmp45 = tmp39 * tmp44
    tmp46 = tmp45.to(tl.float32)
    tmp47 = tmp37 + tmp46
    tmp48 = tmp47.to(tl.float32)
    tmp49 = tl.full([1, 1], 0.0, tl.float32)
    tmp50 = tl.where(tmp36, tmp48, tmp49)
    tl.atomic_add(out_ptr2 + (tl.broadcast_to(r0_1 + 128*tmp28, [XBLOCK, R0_BLOCK])), tmp50, xmask, sem='relaxed')
''', device_str='cuda')


# kernel path: /tmp/cache/oo/coovkw36r2u3rubvlfhdan3m2olj7r6fbu7kiegnrnduhckjeiim.py
# Topologically Sorted Source Nodes: [convert_element_type_24], Original ATen: [aten.embedding_dense_backward]
# Source node to ATen node mapping:
#   convert_element_type_24 => convert_element_type_24
# Graph fragment:
#   %buf18 : Tensor "f32[100, 128][128, 1]cuda:0" = PlaceHolder[target=buf18]
#   %convert_element_type_24 : Tensor "bf16[100, 128][128, 1]cuda:0"[num_users=1] = call_function[target=torch.ops.prims.convert_element_type.default](args = (%_unsafe_masked_index_put_accumulate, torch.bfloat16), kwargs = {})
#   return %convert_element_type_24
triton_poi_fused_embedding_dense_backward_5 = async_compile.triton('triton_poi_fused_embedding_dense_backward_5', '''
import triton
import triton.language as tl

from torch._inductor.runtime import triton_helpers, triton_heuristics
from torch._inductor.runtime.triton_helpers import libdevice, math as tl_math
from torch._inductor.runtime.hints import AutotuneHint, ReductionHint, TileHint, DeviceProperties
triton_helpers.set_driver_to_gpu()

@triton_heuristics.pointwise(
    size_hints={'x': 16384}, 
    filename=__file__,
    triton_meta={'signature': {'in_ptr0': '*fp32', 'out_ptr0': '*bf16', 'xnumel': 'i32', 'XBLOCK': 'constexpr'}, 'device': DeviceProperties(type='cuda', index=0, multi_processor_count=132, cc=90, major=9, regs_per_multiprocessor=65536, max_threads_per_multi_processor=2048, max_threads_per_block=1024, warp_size=32), 'constants': {}, 'native_matmul': False, 'enable_fp_fusion': True, 'launch_pdl': False, 'disable_ftz': False, 'configs': [{(0,): [['tt.divisibility', 16]], (1,): [['tt.divisibility', 16]], (2,): [['tt.divisibility', 16]]}]},
    inductor_meta={'grid_type': 'Grid1D', 'kernel_name': 'triton_poi_fused_embedding_dense_backward_5', 'mutated_arg_names': [], 'optimize_mem': True, 'no_x_dim': False, 'atomic_add_found': False, 'num_load': 1, 'num_store': 1, 'num_reduction': 0, 'autotune_hints': set(), 'tiling_scores': {'x': 51200}, 'backend_hash': 'A7974629523B4D795A8C0C90B2297822F17759D8C9C132184692A517F69FBE14', 'assert_indirect_indexing': True, 'autotune_local_cache': True, 'autotune_pointwise': True, 'autotune_remote_cache': None, 'force_disable_caches': False, 'dynamic_scale_rblock': True, 'incremental_autotune': False, 'max_autotune': False, 'max_autotune_pointwise': False, 'min_split_scan_rblock': 256, 'spill_threshold': 16, 'store_cubin': False, 'deterministic': False, 'batch_invariant': False, 'force_filter_reduction_configs': False, 'mix_order_reduction_allow_multi_stages': True, 'dynamic_disable_pipelining': True, 'are_deterministic_algorithms_enabled': False},
    min_elem_per_thread=0
)
@triton.jit
def triton_poi_fused_embedding_dense_backward_5(in_ptr0, out_ptr0, xnumel, XBLOCK : tl.constexpr):
    xnumel = 12800
    xoffset = tl.program_id(0) * XBLOCK
    xindex = xoffset + tl.arange(0, XBLOCK)[:]
    xmask = xindex < xnumel
    x0 = xindex
    tmp0 = tl.load(in_ptr0 + (x0), xmask)
    tmp1 = tmp0.to(tl.float32)
    tl.store(out_ptr0 + (x0), tmp1, xmask)
''', device_str='cuda')


# kernel path: /tmp/cache/vb/cvbs4elja2tdrp2bsjxjott4wgibpqf5nysqpdsdtv2nwwgpo52m.py
# Topologically Sorted Source Nodes: [cat, view_10, permute_9, clone, view_11, view_12, sum_2], Original ATen: [aten.stack, aten.permute, aten.clone, aten._unsafe_view, aten.view, aten.sum]
# Source node to ATen node mapping:
#   cat => cat
#   clone => clone
#   permute_9 => permute_9
#   sum_2 => sum_2
#   view_10 => view_10
#   view_11 => view_11
#   view_12 => view_12
# Graph fragment:
#   %clone : Tensor "bf16[2, 64, 3, 4, 32][24576, 384, 128, 32, 1]cuda:0" = PlaceHolder[target=clone]
#   %cat : Tensor "bf16[6, 4, 64, 32][8192, 2048, 32, 1]cuda:0"[num_users=1] = call_function[target=torch.ops.aten.cat.default](args = ([%getitem_14, %getitem_15, %getitem_16],), kwargs = {})
#   %view_10 : Tensor "bf16[3, 2, 4, 64, 32][16384, 8192, 2048, 32, 1]cuda:0"[num_users=1] = call_function[target=torch.ops.aten.reshape.default](args = (%cat, [3, 2, 4, 64, 32]), kwargs = {})
#   %permute_9 : Tensor "bf16[2, 64, 3, 4, 32][8192, 32, 16384, 2048, 1]cuda:0"[num_users=1] = call_function[target=torch.ops.aten.permute.default](args = (%view_10, [1, 3, 0, 2, 4]), kwargs = {})
#   %clone : Tensor "bf16[2, 64, 3, 4, 32][24576, 384, 128, 32, 1]cuda:0"[num_users=1] = call_function[target=torch.ops.aten.clone.default](args = (%permute_9,), kwargs = {memory_format: torch.contiguous_format})
#   %view_11 : Tensor "bf16[2, 64, 384][24576, 384, 1]cuda:0"[num_users=1] = call_function[target=torch.ops.aten.reshape.default](args = (%clone, [2, 64, 384]), kwargs = {})
#   %view_12 : Tensor "bf16[128, 384][384, 1]cuda:0"[num_users=3] = call_function[target=torch.ops.aten.reshape.default](args = (%view_11, [128, 384]), kwargs = {})
#   %sum_2 : Tensor "bf16[1, 384][384, 1]cuda:0"[num_users=1] = call_function[target=torch.ops.aten.sum.dim_IntList](args = (%view_12, [0], True), kwargs = {})
#   return %sum_2
triton_red_fused__unsafe_view_clone_permute_stack_sum_view_6 = async_compile.triton('triton_red_fused__unsafe_view_clone_permute_stack_sum_view_6', '''
import triton
import triton.language as tl

from torch._inductor.runtime import triton_helpers, triton_heuristics
from torch._inductor.runtime.triton_helpers import libdevice, math as tl_math
from torch._inductor.runtime.hints import AutotuneHint, ReductionHint, TileHint, DeviceProperties
triton_helpers.set_driver_to_gpu()

@triton_heuristics.reduction(
    size_hints={'x': 512, 'r0_': 128},
    reduction_hint=ReductionHint.OUTER,
    filename=__file__,
    triton_meta={'signature': {'in_ptr0': '*bf16', 'out_ptr0': '*bf16', 'xnumel': 'i32', 'r0_numel': 'i32', 'XBLOCK': 'constexpr', 'R0_BLOCK': 'constexpr'}, 'device': DeviceProperties(type='cuda', index=0, multi_processor_count=132, cc=90, major=9, regs_per_multiprocessor=65536, max_threads_per_multi_processor=2048, max_threads_per_block=1024, warp_size=32), 'constants': {}, 'native_matmul': False, 'enable_fp_fusion': True, 'launch_pdl': False, 'disable_ftz': False, 'configs': [{(0,): [['tt.divisibility', 16]], (1,): [['tt.divisibility', 16]], (2,): [['tt.divisibility', 16]], (3,): [['tt.divisibility', 16]]}]},
    inductor_meta={'grid_type': 'Grid1D', 'kernel_name': 'triton_red_fused__unsafe_view_clone_permute_stack_sum_view_6', 'mutated_arg_names': [], 'optimize_mem': True, 'no_x_dim': False, 'atomic_add_found': False, 'num_load': 1, 'num_store': 1, 'num_reduction': 1, 'autotune_hints': set(), 'tiling_scores': {'x': 99840, 'r0_': 0}, 'backend_hash': 'A7974629523B4D795A8C0C90B2297822F17759D8C9C132184692A517F69FBE14', 'assert_indirect_indexing': True, 'autotune_local_cache': True, 'autotune_pointwise': True, 'autotune_remote_cache': None, 'force_disable_caches': False, 'dynamic_scale_rblock': True, 'incremental_autotune': False, 'max_autotune': False, 'max_autotune_pointwise': False, 'min_split_scan_rblock': 256, 'spill_threshold': 16, 'store_cubin': False, 'deterministic': False, 'batch_invariant': False, 'force_filter_reduction_configs': False, 'mix_order_reduction_allow_multi_stages': True, 'dynamic_disable_pipelining': True, 'are_deterministic_algorithms_enabled': False}
)
@triton.jit
def triton_red_fused__unsafe_view_clone_permute_stack_sum_view_6(in_ptr0, out_ptr0, xnumel, r0_numel, XBLOCK : tl.constexpr, R0_BLOCK : tl.constexpr):
    xnumel = 384
    r0_numel = 128
    rnumel = r0_numel
    RBLOCK: tl.constexpr = R0_BLOCK
    xoffset = tl.program_id(0) * XBLOCK
    xindex = xoffset + tl.arange(0, XBLOCK)[:, None]
    xmask = xindex < xnumel
    r0_base = tl.arange(0, R0_BLOCK)[None, :]
    rbase = r0_base
    x0 = xindex
    _tmp2 = tl.full([XBLOCK, R0_BLOCK], 0, tl.float32)
    for r0_offset in tl.range(0, r0_numel, R0_BLOCK):
        r0_index = r0_offset + r0_base
        r0_mask = r0_index < r0_numel
        roffset = r0_offset
        rindex = r0_index
        r0_1 = r0_index
        tmp0 = tl.load(in_ptr0 + (x0 + 384*r0_1), r0_mask & xmask, eviction_policy='evict_first', other=0.0).to(tl.float32)
        tmp1 = tl.broadcast_to(tmp0, [XBLOCK, R0_BLOCK])
        tmp3 = _tmp2 + tmp1
        _tmp2 = tl.where(r0_mask & xmask, tmp3, _tmp2)
    tmp2 = tl.sum(_tmp2, 1)[:, None]
    tl.store(out_ptr0 + (x0), tmp2, xmask)
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
        primals_2, primals_3, primals_5, primals_7, embedding, getitem_1, rsqrt, view, getitem_2, getitem_3, getitem_4, getitem_5, getitem_6, getitem_11, getitem_12, tangents_1 = args
        args.clear()
        assert_size_stride(tangents_1, (2, 64, 128), (8192, 128, 1), 'input')
        assert_size_stride(primals_7, (128, 128), (128, 1), 'input')
        with torch.cuda._DeviceGuard(0):
            torch.cuda.set_device(0)
            tangents_1 = copy_if_misaligned(tangents_1)
            buf0 = empty_strided_cuda((128, 128), (128, 1), torch.bfloat16)
            # Topologically Sorted Source Nodes: [view_6, linear_1, permute_4, mm], Original ATen: [aten.view, aten.t, aten.mm]
            # [Provenance debug handles] extern_kernels.mm:1
            extern_kernels.mm(reinterpret_tensor(tangents_1, (128, 128), (128, 1), 0), primals_7, out=buf0)
            del primals_7
            assert_size_stride(getitem_2, (2, 4, 64, 32), (24576, 32, 384, 1), 'input')
            assert_size_stride(getitem_3, (2, 4, 64, 32), (24576, 32, 384, 1), 'input')
            assert_size_stride(getitem_4, (2, 4, 64, 32), (24576, 32, 384, 1), 'input')
            assert_size_stride(getitem_5, (2, 4, 64, 32), (8192, 32, 128, 1), 'input')
            assert_size_stride(getitem_6, (2, 4, 64), (256, 64, 1), 'input')
            assert_size_stride(getitem_11, (2, ), (1, ), 'input')
            assert_size_stride(getitem_12, (), (), 'input')
            # Topologically Sorted Source Nodes: [view_8, view_9, permute_8, _scaled_dot_product_flash_attention_backward], Original ATen: [aten.view, aten.transpose, aten._scaled_dot_product_flash_attention_backward]
            # [Provenance debug handles] torch.ops.aten._scaled_dot_product_flash_attention_backward.default:2
            buf3 = torch.ops.aten._scaled_dot_product_flash_attention_backward.default(reinterpret_tensor(buf0, (2, 4, 64, 32), (8192, 32, 128, 1), 0), getitem_2, getitem_3, getitem_4, getitem_5, getitem_6, None, None, 64, 64, 0.0, True, getitem_11, getitem_12, scale=0.17677669529663687)
            del getitem_11
            del getitem_12
            del getitem_2
            del getitem_3
            del getitem_4
            del getitem_6
            buf4 = buf3[0]
            assert_size_stride(buf4, (2, 4, 64, 32), (8192, 32, 128, 1), 'torch.ops.aten._scaled_dot_product_flash_attention_backward.default')
            assert_alignment(buf4, 16, 'torch.ops.aten._scaled_dot_product_flash_attention_backward.default')
            buf5 = buf3[1]
            assert_size_stride(buf5, (2, 4, 64, 32), (8192, 32, 128, 1), 'torch.ops.aten._scaled_dot_product_flash_attention_backward.default')
            assert_alignment(buf5, 16, 'torch.ops.aten._scaled_dot_product_flash_attention_backward.default')
            buf6 = buf3[2]
            assert_size_stride(buf6, (2, 4, 64, 32), (8192, 32, 128, 1), 'torch.ops.aten._scaled_dot_product_flash_attention_backward.default')
            assert_alignment(buf6, 16, 'torch.ops.aten._scaled_dot_product_flash_attention_backward.default')
            del buf3
            buf2 = empty_strided_cuda((1, 128), (128, 1), torch.bfloat16)
            # Topologically Sorted Source Nodes: [view_6, sum_1], Original ATen: [aten.view, aten.sum]
            # [Provenance debug handles] triton_red_fused_sum_view_0:3
            raw_stream0 = get_raw_stream(0)
            triton_red_fused_sum_view_0.run(tangents_1, buf2, 128, 128, stream=raw_stream0)
            buf17 = empty_strided_cuda((100, 128), (128, 1), torch.float32)
            # Topologically Sorted Source Nodes: [view_14, clone_1, clone_3, mul_3, mul_4, layer_norm, mul_6, sub_2, sub_3, div, mul_7, convert_element_type_20, add_3, convert_element_type_23, ge, lt, bitwise_and, ne, bitwise_and_1, unsqueeze, full, _unsafe_masked_index_put_accumulate], Original ATen: [aten.view, aten.native_layer_norm_backward, aten.native_layer_norm, aten.add, aten.embedding_dense_backward]
            # [Provenance debug handles] triton_poi_fused_add_embedding_dense_backward_native_layer_norm_native_layer_norm_backward_view_1:4
            raw_stream0 = get_raw_stream(0)
            triton_poi_fused_add_embedding_dense_backward_native_layer_norm_native_layer_norm_backward_view_1.run(buf17, 12800, stream=raw_stream0)
            buf1 = buf0; del buf0  # reuse
            # Topologically Sorted Source Nodes: [view_6, permute_5, transpose, reshape, linear_1, permute_7], Original ATen: [aten.view, aten.t, aten.transpose, aten.mm]
            # [Provenance debug handles] extern_kernels.mm:5
            extern_kernels.mm(reinterpret_tensor(tangents_1, (128, 128), (1, 128), 0), reinterpret_tensor(getitem_5, (128, 128), (128, 1), 0), out=buf1)
            del getitem_5
            buf7 = empty_strided_cuda((2, 64, 3, 4, 32), (24576, 384, 128, 32, 1), torch.bfloat16)
            # Topologically Sorted Source Nodes: [cat, view_10, permute_9, clone], Original ATen: [aten.stack, aten.permute, aten.clone]
            # [Provenance debug handles] triton_poi_fused_clone_permute_stack_2:6
            raw_stream0 = get_raw_stream(0)
            triton_poi_fused_clone_permute_stack_2.run(buf4, buf5, buf6, buf7, 49152, stream=raw_stream0)
            del buf4
            del buf5
            assert_size_stride(primals_5, (384, 128), (128, 1), 'input')
            buf8 = reinterpret_tensor(buf6, (128, 128), (128, 1), 0); del buf6  # reuse
            # Topologically Sorted Source Nodes: [cat, view_10, permute_9, clone, view_11, view_12, linear, permute_10, mm_2], Original ATen: [aten.stack, aten.permute, aten.clone, aten._unsafe_view, aten.view, aten.t, aten.mm]
            # [Provenance debug handles] extern_kernels.mm:7
            extern_kernels.mm(reinterpret_tensor(buf7, (128, 384), (384, 1), 0), primals_5, out=buf8)
            del primals_5
            assert_size_stride(embedding, (2, 64, 128), (8192, 128, 1), 'input')
            assert_size_stride(getitem_1, (2, 64, 1), (64, 1, 1), 'input')
            assert_size_stride(rsqrt, (2, 64, 1), (64, 1, 1), 'input')
            buf15 = empty_strided_cuda((128, ), (1, ), torch.bfloat16)
            buf16 = empty_strided_cuda((128, ), (1, ), torch.bfloat16)
            # Topologically Sorted Source Nodes: [view_14, clone_1, layer_norm, mul_8, sum_5, sum_6, convert_element_type_21, convert_element_type_22], Original ATen: [aten.view, aten.native_layer_norm_backward, aten.native_layer_norm]
            # [Provenance debug handles] triton_red_fused_native_layer_norm_native_layer_norm_backward_view_3:8
            raw_stream0 = get_raw_stream(0)
            triton_red_fused_native_layer_norm_native_layer_norm_backward_view_3.run(buf8, embedding, getitem_1, rsqrt, buf15, buf16, 128, 128, stream=raw_stream0)
            assert_size_stride(primals_3, (128, ), (1, ), 'input')
            assert_size_stride(primals_2, (2, 64), (64, 1), 'input')
            # Topologically Sorted Source Nodes: [view_14, clone_1, clone_3, mul_3, mul_4, sum_3, layer_norm, mul_5, sum_4, mul_6, sub_2, sub_3, div, mul_7, convert_element_type_20, add_3, convert_element_type_23, ge, lt, bitwise_and, ne, bitwise_and_1, unsqueeze, full, _unsafe_masked_index_put_accumulate], Original ATen: [aten.view, aten.native_layer_norm_backward, aten.native_layer_norm, aten.add, aten.embedding_dense_backward]
            # [Provenance debug handles] triton_per_fused_add_embedding_dense_backward_native_layer_norm_native_layer_norm_backward_view_4:9
            raw_stream0 = get_raw_stream(0)
            triton_per_fused_add_embedding_dense_backward_native_layer_norm_native_layer_norm_backward_view_4.run(buf8, primals_3, embedding, getitem_1, rsqrt, primals_2, tangents_1, buf17, 128, 128, stream=raw_stream0)
            del buf8
            del embedding
            del getitem_1
            del primals_2
            del primals_3
            del rsqrt
            del tangents_1
            buf19 = empty_strided_cuda((100, 128), (128, 1), torch.bfloat16)
            # Topologically Sorted Source Nodes: [convert_element_type_24], Original ATen: [aten.embedding_dense_backward]
            # [Provenance debug handles] triton_poi_fused_embedding_dense_backward_5:10
            raw_stream0 = get_raw_stream(0)
            triton_poi_fused_embedding_dense_backward_5.run(buf17, buf19, 12800, stream=raw_stream0)
            del buf17
            buf10 = empty_strided_cuda((1, 384), (384, 1), torch.bfloat16)
            # Topologically Sorted Source Nodes: [cat, view_10, permute_9, clone, view_11, view_12, sum_2], Original ATen: [aten.stack, aten.permute, aten.clone, aten._unsafe_view, aten.view, aten.sum]
            # [Provenance debug handles] triton_red_fused__unsafe_view_clone_permute_stack_sum_view_6:11
            raw_stream0 = get_raw_stream(0)
            triton_red_fused__unsafe_view_clone_permute_stack_sum_view_6.run(buf7, buf10, 384, 128, stream=raw_stream0)
            assert_size_stride(view, (128, 128), (128, 1), 'input')
            buf9 = empty_strided_cuda((384, 128), (128, 1), torch.bfloat16)
            # Topologically Sorted Source Nodes: [cat, view_10, permute_9, clone, view_11, view_12, permute_11, permute_13], Original ATen: [aten.stack, aten.permute, aten.clone, aten._unsafe_view, aten.view, aten.t, aten.mm]
            # [Provenance debug handles] extern_kernels.mm:12
            extern_kernels.mm(reinterpret_tensor(buf7, (384, 128), (1, 384), 0), view, out=buf9)
            del buf7
            del view
        return (buf19, None, buf15, buf16, buf9, reinterpret_tensor(buf10, (384, ), (1, ), 0), buf1, reinterpret_tensor(buf2, (128, ), (1, ), 0), )

runner = Runner(partitions=[])
call = runner.call
recursively_apply_fns = runner.recursively_apply_fns


def get_args():
    from torch._dynamo.testing import rand_strided
    _shared_storage_8 = rand_strided((49152,), (1,), device='cuda:0', dtype=torch.bfloat16)
    primals_2 = rand_strided((2, 64), (64, 1), device='cuda:0', dtype=torch.int64)
    primals_3 = rand_strided((128, ), (1, ), device='cuda:0', dtype=torch.bfloat16)
    primals_5 = rand_strided((384, 128), (128, 1), device='cuda:0', dtype=torch.bfloat16)
    primals_7 = rand_strided((128, 128), (128, 1), device='cuda:0', dtype=torch.bfloat16)
    embedding = rand_strided((2, 64, 128), (8192, 128, 1), device='cuda:0', dtype=torch.bfloat16)
    getitem_1 = rand_strided((2, 64, 1), (64, 1, 1), device='cuda:0', dtype=torch.float32)
    rsqrt = rand_strided((2, 64, 1), (64, 1, 1), device='cuda:0', dtype=torch.float32)
    view = rand_strided((128, 128), (128, 1), device='cuda:0', dtype=torch.bfloat16)
    getitem_2 = torch.as_strided(_shared_storage_8, (2, 4, 64, 32), (24576, 32, 384, 1))
    getitem_3 = torch.as_strided(_shared_storage_8, (2, 4, 64, 32), (24576, 32, 384, 1))
    getitem_4 = torch.as_strided(_shared_storage_8, (2, 4, 64, 32), (24576, 32, 384, 1))
    getitem_5 = rand_strided((2, 4, 64, 32), (8192, 32, 128, 1), device='cuda:0', dtype=torch.bfloat16)
    getitem_6 = rand_strided((2, 4, 64), (256, 64, 1), device='cuda:0', dtype=torch.float32)
    getitem_11 = rand_strided((2, ), (1, ), device='cuda:0', dtype=torch.uint64)
    getitem_12 = rand_strided((), (), device='cuda:0', dtype=torch.uint64)
    tangents_1 = rand_strided((2, 64, 128), (8192, 128, 1), device='cuda:0', dtype=torch.bfloat16)
    return [primals_2, primals_3, primals_5, primals_7, embedding, getitem_1, rsqrt, view, getitem_2, getitem_3, getitem_4, getitem_5, getitem_6, getitem_11, getitem_12, tangents_1]


def benchmark_compiled_module(args, times=10, repeat=10):
    from torch._inductor.utils import print_performance
    fn = lambda: call(list(args))
    return print_performance(fn, times=times, repeat=repeat, device='cuda')


if __name__ == "__main__":
    from torch._inductor.wrapper_benchmark import compiled_module_main
    args = get_args()
    compiled_module_main('None', lambda times, repeat: benchmark_compiled_module(args, times=times, repeat=repeat))
