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


# kernel path: /tmp/cache/ik/cikmcgg56xyp66mqlbrejd4wcimzsehz4auz2ehragp6m3in2rgk.py
# Topologically Sorted Source Nodes: [view_2, full_1, view_3, max_pool2d, view_4, scatter_add], Original ATen: [aten.view, aten.max_pool2d_with_indices_backward, aten.max_pool2d_with_indices]
# Source node to ATen node mapping:
#   full_1 => full_default
#   max_pool2d => _low_memory_max_pool_offsets_to_indices
#   scatter_add => scatter_add
#   view_2 => view_2
#   view_3 => view_3
#   view_4 => view_4
# Graph fragment:
#   %view_2 : Tensor "f32[4, 16, 8, 8][1024, 64, 8, 1]cuda:0"[num_users=1] = call_function[target=torch.ops.aten.reshape.default](args = (%mm, [4, 16, 8, 8]), kwargs = {})
#   %full_default : Tensor "f32[64, 1024][1024, 1]cuda:0"[num_users=1] = call_function[target=torch.ops.aten.full.default](args = ([64, 1024], 0), kwargs = {dtype: torch.float32, layout: torch.strided, device: cuda:0, pin_memory: False})
#   %view_3 : Tensor "f32[64, 64][64, 1]cuda:0"[num_users=1] = call_function[target=torch.ops.aten.reshape.default](args = (%view_2, [64, 64]), kwargs = {})
#   %_low_memory_max_pool_offsets_to_indices : Tensor "i64[4, 16, 8, 8][1024, 64, 8, 1]cuda:0"[num_users=1] = call_function[target=torch.ops.prims._low_memory_max_pool_offsets_to_indices.default](args = (%getitem_3, [4, 4], [32, 32], [4, 4], [0, 0], [1, 1]), kwargs = {})
#   %view_4 : Tensor "i64[64, 64][64, 1]cuda:0"[num_users=1] = call_function[target=torch.ops.aten.reshape.default](args = (%_low_memory_max_pool_offsets_to_indices, [64, 64]), kwargs = {})
#   %scatter_add : Tensor "f32[64, 1024][1024, 1]cuda:0"[num_users=1] = call_function[target=torch.ops.aten.scatter_add.default](args = (%full_default, 1, %view_4, %view_3), kwargs = {})
#   return %scatter_add
triton_poi_fused_max_pool2d_with_indices_max_pool2d_with_indices_backward_view_0 = async_compile.triton('triton_poi_fused_max_pool2d_with_indices_max_pool2d_with_indices_backward_view_0', '''
import triton
import triton.language as tl

from torch._inductor.runtime import triton_helpers, triton_heuristics
from torch._inductor.runtime.triton_helpers import libdevice, math as tl_math
from torch._inductor.runtime.hints import AutotuneHint, ReductionHint, TileHint, DeviceProperties
triton_helpers.set_driver_to_gpu()

@triton_heuristics.pointwise(
    size_hints={'x': 65536}, 
    filename=__file__,
    triton_meta={'signature': {'out_ptr0': '*fp32', 'xnumel': 'i32', 'XBLOCK': 'constexpr'}, 'device': DeviceProperties(type='cuda', index=0, multi_processor_count=132, cc=90, major=9, regs_per_multiprocessor=65536, max_threads_per_multi_processor=2048, max_threads_per_block=1024, warp_size=32), 'constants': {}, 'native_matmul': False, 'enable_fp_fusion': True, 'launch_pdl': False, 'disable_ftz': False, 'configs': [{(0,): [['tt.divisibility', 16]], (1,): [['tt.divisibility', 16]]}]},
    inductor_meta={'grid_type': 'Grid1D', 'kernel_name': 'triton_poi_fused_max_pool2d_with_indices_max_pool2d_with_indices_backward_view_0', 'mutated_arg_names': [], 'optimize_mem': True, 'no_x_dim': False, 'atomic_add_found': False, 'num_load': 0, 'num_store': 1, 'num_reduction': 0, 'autotune_hints': set(), 'tiling_scores': {'x': 524288}, 'backend_hash': 'A7974629523B4D795A8C0C90B2297822F17759D8C9C132184692A517F69FBE14', 'assert_indirect_indexing': True, 'autotune_local_cache': True, 'autotune_pointwise': True, 'autotune_remote_cache': None, 'force_disable_caches': False, 'dynamic_scale_rblock': True, 'incremental_autotune': False, 'max_autotune': False, 'max_autotune_pointwise': False, 'min_split_scan_rblock': 256, 'spill_threshold': 16, 'store_cubin': False, 'deterministic': False, 'batch_invariant': False, 'force_filter_reduction_configs': False, 'mix_order_reduction_allow_multi_stages': True, 'dynamic_disable_pipelining': True, 'are_deterministic_algorithms_enabled': False},
    min_elem_per_thread=0
)
@triton.jit
def triton_poi_fused_max_pool2d_with_indices_max_pool2d_with_indices_backward_view_0(out_ptr0, xnumel, XBLOCK : tl.constexpr):
    xnumel = 65536
    xoffset = tl.program_id(0) * XBLOCK
    xindex = xoffset + tl.arange(0, XBLOCK)[:]
    xmask = tl.full([XBLOCK], True, tl.int1)[:]
    x0 = xindex
    tmp0 = tl.full([1], 0.0, tl.float32)
    tl.store(out_ptr0 + (x0), tmp0, None)
''', device_str='cuda')


# kernel path: /tmp/cache/xi/cxiextlbpu2imhsofcmgp4qlyv5sm5qe42wel7z5opiwkbtpdau3.py
# Topologically Sorted Source Nodes: [view_2, full_1, view_3, max_pool2d, view_4, scatter_add], Original ATen: [aten.view, aten.max_pool2d_with_indices_backward, aten.max_pool2d_with_indices]
# Source node to ATen node mapping:
#   full_1 => full_default
#   max_pool2d => _low_memory_max_pool_offsets_to_indices
#   scatter_add => scatter_add
#   view_2 => view_2
#   view_3 => view_3
#   view_4 => view_4
# Graph fragment:
#   %getitem_3 : Tensor "i8[4, 16, 8, 8][1024, 64, 8, 1]cuda:0" = PlaceHolder[target=getitem_3]
#   %mm : Tensor "f32[4, 1024][1024, 1]cuda:0" = PlaceHolder[target=mm]
#   %scatter_add : Tensor "f32[64, 1024][1024, 1]cuda:0" = PlaceHolder[target=scatter_add]
#   %view_2 : Tensor "f32[4, 16, 8, 8][1024, 64, 8, 1]cuda:0"[num_users=1] = call_function[target=torch.ops.aten.reshape.default](args = (%mm, [4, 16, 8, 8]), kwargs = {})
#   %full_default : Tensor "f32[64, 1024][1024, 1]cuda:0"[num_users=1] = call_function[target=torch.ops.aten.full.default](args = ([64, 1024], 0), kwargs = {dtype: torch.float32, layout: torch.strided, device: cuda:0, pin_memory: False})
#   %view_3 : Tensor "f32[64, 64][64, 1]cuda:0"[num_users=1] = call_function[target=torch.ops.aten.reshape.default](args = (%view_2, [64, 64]), kwargs = {})
#   %_low_memory_max_pool_offsets_to_indices : Tensor "i64[4, 16, 8, 8][1024, 64, 8, 1]cuda:0"[num_users=1] = call_function[target=torch.ops.prims._low_memory_max_pool_offsets_to_indices.default](args = (%getitem_3, [4, 4], [32, 32], [4, 4], [0, 0], [1, 1]), kwargs = {})
#   %view_4 : Tensor "i64[64, 64][64, 1]cuda:0"[num_users=1] = call_function[target=torch.ops.aten.reshape.default](args = (%_low_memory_max_pool_offsets_to_indices, [64, 64]), kwargs = {})
#   %scatter_add : Tensor "f32[64, 1024][1024, 1]cuda:0"[num_users=1] = call_function[target=torch.ops.aten.scatter_add.default](args = (%full_default, 1, %view_4, %view_3), kwargs = {})
#   return %buf4
triton_poi_fused_max_pool2d_with_indices_max_pool2d_with_indices_backward_view_1 = async_compile.triton('triton_poi_fused_max_pool2d_with_indices_max_pool2d_with_indices_backward_view_1', '''
import triton
import triton.language as tl

from torch._inductor.runtime import triton_helpers, triton_heuristics
from torch._inductor.runtime.triton_helpers import libdevice, math as tl_math
from torch._inductor.runtime.hints import AutotuneHint, ReductionHint, TileHint, DeviceProperties
triton_helpers.set_driver_to_gpu()

@triton_heuristics.pointwise(
    size_hints={'x': 4096}, 
    filename=__file__,
    triton_meta={'signature': {'in_ptr0': '*i8', 'in_ptr1': '*fp32', 'out_ptr0': '*fp32', 'xnumel': 'i32', 'XBLOCK': 'constexpr'}, 'device': DeviceProperties(type='cuda', index=0, multi_processor_count=132, cc=90, major=9, regs_per_multiprocessor=65536, max_threads_per_multi_processor=2048, max_threads_per_block=1024, warp_size=32), 'constants': {}, 'native_matmul': False, 'enable_fp_fusion': True, 'launch_pdl': False, 'disable_ftz': False, 'configs': [{(0,): [['tt.divisibility', 16]], (1,): [['tt.divisibility', 16]], (2,): [['tt.divisibility', 16]], (3,): [['tt.divisibility', 16]]}]},
    inductor_meta={'grid_type': 'Grid1D', 'kernel_name': 'triton_poi_fused_max_pool2d_with_indices_max_pool2d_with_indices_backward_view_1', 'mutated_arg_names': ['out_ptr0'], 'optimize_mem': True, 'no_x_dim': False, 'atomic_add_found': True, 'num_load': 2, 'num_store': 1, 'num_reduction': 0, 'autotune_hints': set(), 'tiling_scores': {'x': 20480}, 'backend_hash': 'A7974629523B4D795A8C0C90B2297822F17759D8C9C132184692A517F69FBE14', 'assert_indirect_indexing': True, 'autotune_local_cache': True, 'autotune_pointwise': True, 'autotune_remote_cache': None, 'force_disable_caches': False, 'dynamic_scale_rblock': True, 'incremental_autotune': False, 'max_autotune': False, 'max_autotune_pointwise': False, 'min_split_scan_rblock': 256, 'spill_threshold': 16, 'store_cubin': False, 'deterministic': False, 'batch_invariant': False, 'force_filter_reduction_configs': False, 'mix_order_reduction_allow_multi_stages': True, 'dynamic_disable_pipelining': True, 'are_deterministic_algorithms_enabled': False},
    min_elem_per_thread=0
)
@triton.jit
def triton_poi_fused_max_pool2d_with_indices_max_pool2d_with_indices_backward_view_1(in_ptr0, in_ptr1, out_ptr0, xnumel, XBLOCK : tl.constexpr):
    xnumel = 4096
    xoffset = tl.program_id(0) * XBLOCK
    xindex = xoffset + tl.arange(0, XBLOCK)[:]
    xmask = tl.full([XBLOCK], True, tl.int1)[:]
    x2 = xindex
    x0 = (xindex % 64)
    x1 = xindex // 64
    tmp0 = tl.load(in_ptr0 + (x2), None)
    tmp6 = tl.load(in_ptr1 + (x2), None)
    tmp1 = (tl.full([XBLOCK], 16, tl.int32)).to(tl.int32)
    tmp2 = tmp0 + tmp1
    tmp3 = tmp0 < 0
    tmp4 = tl.where(tmp3, tmp2, tmp0)
    tl.device_assert((0 <= tmp4) & (tmp4 < 16), "index out of bounds: 0 <= tmp4 < 16")
    tl.atomic_add(out_ptr0 + (tmp4 + 4*((x0 % 8)) + 28*(tmp4 // 4) + 128*(x0 // 8) + 1024*x1), tmp6, None, sem='relaxed')
''', device_str='cuda')


# kernel path: /tmp/cache/3p/c3pzqtgenjhl33geiunpimi235dlpcatndwgqtk5qkjkt6h3jy5b.py
# Topologically Sorted Source Nodes: [view_5, scalar_tensor, where], Original ATen: [aten.max_pool2d_with_indices_backward, aten.threshold_backward]
# Source node to ATen node mapping:
#   scalar_tensor => full_default_1
#   view_5 => view_5
#   where => where
# Graph fragment:
#   %le : Tensor "b8[4, 16, 32, 32][16384, 1024, 32, 1]cuda:0" = PlaceHolder[target=le]
#   %buf4 : Tensor "f32[64, 1024][1024, 1]cuda:0" = PlaceHolder[target=buf4]
#   %view_5 : Tensor "f32[4, 16, 32, 32][16384, 1024, 32, 1]cuda:0"[num_users=1] = call_function[target=torch.ops.aten.reshape.default](args = (%scatter_add, [4, 16, 32, 32]), kwargs = {})
#   %full_default_1 : Tensor "f32[][]cuda:0"[num_users=2] = call_function[target=torch.ops.aten.full.default](args = ([], 0.0), kwargs = {dtype: torch.float32, layout: torch.strided, device: cuda:0, pin_memory: False})
#   %where : Tensor "f32[4, 16, 32, 32][16384, 1024, 32, 1]cuda:0"[num_users=3] = call_function[target=torch.ops.aten.where.self](args = (%le, %full_default_1, %view_5), kwargs = {})
#   return %where
triton_poi_fused_max_pool2d_with_indices_backward_threshold_backward_2 = async_compile.triton('triton_poi_fused_max_pool2d_with_indices_backward_threshold_backward_2', '''
import triton
import triton.language as tl

from torch._inductor.runtime import triton_helpers, triton_heuristics
from torch._inductor.runtime.triton_helpers import libdevice, math as tl_math
from torch._inductor.runtime.hints import AutotuneHint, ReductionHint, TileHint, DeviceProperties
triton_helpers.set_driver_to_gpu()

@triton_heuristics.pointwise(
    size_hints={'x': 65536}, 
    filename=__file__,
    triton_meta={'signature': {'in_ptr0': '*i1', 'in_ptr1': '*fp32', 'out_ptr0': '*fp32', 'xnumel': 'i32', 'XBLOCK': 'constexpr'}, 'device': DeviceProperties(type='cuda', index=0, multi_processor_count=132, cc=90, major=9, regs_per_multiprocessor=65536, max_threads_per_multi_processor=2048, max_threads_per_block=1024, warp_size=32), 'constants': {}, 'native_matmul': False, 'enable_fp_fusion': True, 'launch_pdl': False, 'disable_ftz': False, 'configs': [{(0,): [['tt.divisibility', 16]], (1,): [['tt.divisibility', 16]], (2,): [['tt.divisibility', 16]], (3,): [['tt.divisibility', 16]]}]},
    inductor_meta={'grid_type': 'Grid1D', 'kernel_name': 'triton_poi_fused_max_pool2d_with_indices_backward_threshold_backward_2', 'mutated_arg_names': [], 'optimize_mem': True, 'no_x_dim': False, 'atomic_add_found': False, 'num_load': 2, 'num_store': 1, 'num_reduction': 0, 'autotune_hints': set(), 'tiling_scores': {'x': 589824}, 'backend_hash': 'A7974629523B4D795A8C0C90B2297822F17759D8C9C132184692A517F69FBE14', 'assert_indirect_indexing': True, 'autotune_local_cache': True, 'autotune_pointwise': True, 'autotune_remote_cache': None, 'force_disable_caches': False, 'dynamic_scale_rblock': True, 'incremental_autotune': False, 'max_autotune': False, 'max_autotune_pointwise': False, 'min_split_scan_rblock': 256, 'spill_threshold': 16, 'store_cubin': False, 'deterministic': False, 'batch_invariant': False, 'force_filter_reduction_configs': False, 'mix_order_reduction_allow_multi_stages': True, 'dynamic_disable_pipelining': True, 'are_deterministic_algorithms_enabled': False},
    min_elem_per_thread=0
)
@triton.jit
def triton_poi_fused_max_pool2d_with_indices_backward_threshold_backward_2(in_ptr0, in_ptr1, out_ptr0, xnumel, XBLOCK : tl.constexpr):
    xnumel = 65536
    xoffset = tl.program_id(0) * XBLOCK
    xindex = xoffset + tl.arange(0, XBLOCK)[:]
    xmask = tl.full([XBLOCK], True, tl.int1)[:]
    x0 = xindex
    tmp0 = tl.load(in_ptr0 + (x0), None).to(tl.int1)
    tmp1 = tl.load(in_ptr1 + (x0), None)
    tmp2 = tl.full([1], 0.0, tl.float32)
    tmp3 = tl.where(tmp0, tmp2, tmp1)
    tl.store(out_ptr0 + (x0), tmp3, None)
''', device_str='cuda')


# kernel path: /tmp/cache/uj/cuj5u4rpldf2luqfidz27j4jbsh7jyabgwr5czfcfutbjifrrlvn.py
# Topologically Sorted Source Nodes: [scalar_tensor, sum_2, add_6, le_1, where_1, sum_3, sub_1, mul_7, sum_4, mul_8, unsqueeze_7, unsqueeze_8, unsqueeze_9, mul_9, mul_10, mul_11, unsqueeze_10, unsqueeze_11, unsqueeze_12, mul_12, unsqueeze_13, unsqueeze_14, unsqueeze_15, mul_13, sub_3, sub_4, mul_14, mul_15, sum_5], Original ATen: [aten.threshold_backward, aten.convolution_backward, aten.add, aten.native_batch_norm_backward]
# Source node to ATen node mapping:
#   add_6 => add_6
#   le_1 => le_1
#   mul_10 => mul_10
#   mul_11 => mul_11
#   mul_12 => mul_12
#   mul_13 => mul_13
#   mul_14 => mul_14
#   mul_15 => mul_15
#   mul_7 => mul_7
#   mul_8 => mul_8
#   mul_9 => mul_9
#   scalar_tensor => full_default_1
#   sub_1 => sub_1
#   sub_3 => sub_3
#   sub_4 => sub_4
#   sum_2 => sum_2
#   sum_3 => sum_3
#   sum_4 => sum_4
#   sum_5 => sum_5
#   unsqueeze_10 => unsqueeze_10
#   unsqueeze_11 => unsqueeze_11
#   unsqueeze_12 => unsqueeze_12
#   unsqueeze_13 => unsqueeze_13
#   unsqueeze_14 => unsqueeze_14
#   unsqueeze_15 => unsqueeze_15
#   unsqueeze_7 => unsqueeze_7
#   unsqueeze_8 => unsqueeze_8
#   unsqueeze_9 => unsqueeze_9
#   where_1 => where_1
# Graph fragment:
#   %where : Tensor "f32[4, 16, 32, 32][16384, 1024, 32, 1]cuda:0" = PlaceHolder[target=where]
#   %relu : Tensor "f32[4, 16, 32, 32][16384, 1024, 32, 1]cuda:0" = PlaceHolder[target=relu]
#   %getitem_4 : Tensor "f32[4, 16, 32, 32][16384, 1024, 32, 1]cuda:0" = PlaceHolder[target=getitem_4]
#   %convolution : Tensor "f32[4, 16, 32, 32][16384, 1024, 32, 1]cuda:0" = PlaceHolder[target=convolution]
#   %unsqueeze_6 : Tensor "f32[1, 16, 1, 1][16, 1, 1, 1]cuda:0" = PlaceHolder[target=unsqueeze_6]
#   %sum_4 : Tensor "f32[16][1]cuda:0" = PlaceHolder[target=sum_4]
#   %squeeze_1 : Tensor "f32[16][1]cuda:0" = PlaceHolder[target=squeeze_1]
#   %sum_3 : Tensor "f32[16][1]cuda:0" = PlaceHolder[target=sum_3]
#   %primals_7 : Tensor "f32[16][1]cuda:0" = PlaceHolder[target=primals_7]
#   %mul_14 : Tensor "f32[4, 16, 32, 32][16384, 1024, 32, 1]cuda:0" = PlaceHolder[target=mul_14]
#   %full_default_1 : Tensor "f32[][]cuda:0"[num_users=2] = call_function[target=torch.ops.aten.full.default](args = ([], 0.0), kwargs = {dtype: torch.float32, layout: torch.strided, device: cuda:0, pin_memory: False})
#   %sum_2 : Tensor "f32[16][1]cuda:0"[num_users=1] = call_function[target=torch.ops.aten.sum.dim_IntList](args = (%where, [0, 2, 3]), kwargs = {})
#   %add_6 : Tensor "f32[4, 16, 32, 32][16384, 1024, 32, 1]cuda:0"[num_users=1] = call_function[target=torch.ops.aten.add.Tensor](args = (%where, %getitem_4), kwargs = {})
#   %le_1 : Tensor "b8[4, 16, 32, 32][16384, 1024, 32, 1]cuda:0"[num_users=1] = call_function[target=torch.ops.aten.le.Scalar](args = (%relu, 0), kwargs = {})
#   %where_1 : Tensor "f32[4, 16, 32, 32][16384, 1024, 32, 1]cuda:0"[num_users=3] = call_function[target=torch.ops.aten.where.self](args = (%le_1, %full_default_1, %add_6), kwargs = {})
#   %sum_3 : Tensor "f32[16][1]cuda:0"[num_users=2] = call_function[target=torch.ops.aten.sum.dim_IntList](args = (%where_1, [0, 2, 3]), kwargs = {})
#   %sub_1 : Tensor "f32[4, 16, 32, 32][16384, 1024, 32, 1]cuda:0"[num_users=2] = call_function[target=torch.ops.aten.sub.Tensor](args = (%convolution, %unsqueeze_6), kwargs = {})
#   %mul_7 : Tensor "f32[4, 16, 32, 32][16384, 1024, 32, 1]cuda:0"[num_users=1] = call_function[target=torch.ops.aten.mul.Tensor](args = (%where_1, %sub_1), kwargs = {})
#   %sum_4 : Tensor "f32[16][1]cuda:0"[num_users=2] = call_function[target=torch.ops.aten.sum.dim_IntList](args = (%mul_7, [0, 2, 3]), kwargs = {})
#   %mul_8 : Tensor "f32[16][1]cuda:0"[num_users=1] = call_function[target=torch.ops.aten.mul.Tensor](args = (%sum_3, 0.000244140625), kwargs = {})
#   %unsqueeze_7 : Tensor "f32[1, 16][16, 1]cuda:0"[num_users=1] = call_function[target=torch.ops.aten.unsqueeze.default](args = (%mul_8, 0), kwargs = {})
#   %unsqueeze_8 : Tensor "f32[1, 16, 1][16, 1, 1]cuda:0"[num_users=1] = call_function[target=torch.ops.aten.unsqueeze.default](args = (%unsqueeze_7, 2), kwargs = {})
#   %unsqueeze_9 : Tensor "f32[1, 16, 1, 1][16, 1, 1, 1]cuda:0"[num_users=1] = call_function[target=torch.ops.aten.unsqueeze.default](args = (%unsqueeze_8, 3), kwargs = {})
#   %mul_9 : Tensor "f32[16][1]cuda:0"[num_users=1] = call_function[target=torch.ops.aten.mul.Tensor](args = (%sum_4, 0.000244140625), kwargs = {})
#   %mul_10 : Tensor "f32[16][1]cuda:0"[num_users=1] = call_function[target=torch.ops.aten.mul.Tensor](args = (%squeeze_1, %squeeze_1), kwargs = {})
#   %mul_11 : Tensor "f32[16][1]cuda:0"[num_users=1] = call_function[target=torch.ops.aten.mul.Tensor](args = (%mul_9, %mul_10), kwargs = {})
#   %unsqueeze_10 : Tensor "f32[1, 16][16, 1]cuda:0"[num_users=1] = call_function[target=torch.ops.aten.unsqueeze.default](args = (%mul_11, 0), kwargs = {})
#   %unsqueeze_11 : Tensor "f32[1, 16, 1][16, 1, 1]cuda:0"[num_users=1] = call_function[target=torch.ops.aten.unsqueeze.default](args = (%unsqueeze_10, 2), kwargs = {})
#   %unsqueeze_12 : Tensor "f32[1, 16, 1, 1][16, 1, 1, 1]cuda:0"[num_users=1] = call_function[target=torch.ops.aten.unsqueeze.default](args = (%unsqueeze_11, 3), kwargs = {})
#   %mul_12 : Tensor "f32[16][1]cuda:0"[num_users=1] = call_function[target=torch.ops.aten.mul.Tensor](args = (%squeeze_1, %primals_7), kwargs = {})
#   %unsqueeze_13 : Tensor "f32[1, 16][16, 1]cuda:0"[num_users=1] = call_function[target=torch.ops.aten.unsqueeze.default](args = (%mul_12, 0), kwargs = {})
#   %unsqueeze_14 : Tensor "f32[1, 16, 1][16, 1, 1]cuda:0"[num_users=1] = call_function[target=torch.ops.aten.unsqueeze.default](args = (%unsqueeze_13, 2), kwargs = {})
#   %unsqueeze_15 : Tensor "f32[1, 16, 1, 1][16, 1, 1, 1]cuda:0"[num_users=1] = call_function[target=torch.ops.aten.unsqueeze.default](args = (%unsqueeze_14, 3), kwargs = {})
#   %mul_13 : Tensor "f32[4, 16, 32, 32][16384, 1024, 32, 1]cuda:0"[num_users=1] = call_function[target=torch.ops.aten.mul.Tensor](args = (%sub_1, %unsqueeze_12), kwargs = {})
#   %sub_3 : Tensor "f32[4, 16, 32, 32][16384, 1024, 32, 1]cuda:0"[num_users=1] = call_function[target=torch.ops.aten.sub.Tensor](args = (%where_1, %mul_13), kwargs = {})
#   %sub_4 : Tensor "f32[4, 16, 32, 32][16384, 1024, 32, 1]cuda:0"[num_users=1] = call_function[target=torch.ops.aten.sub.Tensor](args = (%sub_3, %unsqueeze_9), kwargs = {})
#   %mul_14 : Tensor "f32[4, 16, 32, 32][16384, 1024, 32, 1]cuda:0"[num_users=2] = call_function[target=torch.ops.aten.mul.Tensor](args = (%sub_4, %unsqueeze_15), kwargs = {})
#   %mul_15 : Tensor "f32[16][1]cuda:0"[num_users=1] = call_function[target=torch.ops.aten.mul.Tensor](args = (%sum_4, %squeeze_1), kwargs = {})
#   %sum_5 : Tensor "f32[16][1]cuda:0"[num_users=1] = call_function[target=torch.ops.aten.sum.dim_IntList](args = (%mul_14, [0, 2, 3]), kwargs = {})
#   return %sum_2,%sum_3,%sum_4,%mul_15,%mul_14,%sum_5
triton_red_fused_add_convolution_backward_native_batch_norm_backward_threshold_backward_3 = async_compile.triton('triton_red_fused_add_convolution_backward_native_batch_norm_backward_threshold_backward_3', '''
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
    triton_meta={'signature': {'in_out_ptr0': '*fp32', 'in_ptr0': '*fp32', 'in_ptr1': '*fp32', 'in_ptr2': '*fp32', 'in_ptr3': '*fp32', 'in_ptr4': '*fp32', 'in_ptr5': '*fp32', 'out_ptr0': '*fp32', 'out_ptr1': '*fp32', 'out_ptr3': '*fp32', 'out_ptr4': '*fp32', 'xnumel': 'i32', 'r0_numel': 'i32', 'XBLOCK': 'constexpr', 'R0_BLOCK': 'constexpr'}, 'device': DeviceProperties(type='cuda', index=0, multi_processor_count=132, cc=90, major=9, regs_per_multiprocessor=65536, max_threads_per_multi_processor=2048, max_threads_per_block=1024, warp_size=32), 'constants': {}, 'native_matmul': False, 'enable_fp_fusion': True, 'launch_pdl': False, 'disable_ftz': False, 'configs': [{(0,): [['tt.divisibility', 16]], (1,): [['tt.divisibility', 16]], (2,): [['tt.divisibility', 16]], (3,): [['tt.divisibility', 16]], (4,): [['tt.divisibility', 16]], (5,): [['tt.divisibility', 16]], (6,): [['tt.divisibility', 16]], (7,): [['tt.divisibility', 16]], (8,): [['tt.divisibility', 16]], (9,): [['tt.divisibility', 16]], (10,): [['tt.divisibility', 16]], (11,): [['tt.divisibility', 16]], (12,): [['tt.divisibility', 16]]}]},
    inductor_meta={'grid_type': 'Grid1D', 'kernel_name': 'triton_red_fused_add_convolution_backward_native_batch_norm_backward_threshold_backward_3', 'mutated_arg_names': ['in_out_ptr0'], 'optimize_mem': True, 'no_x_dim': False, 'atomic_add_found': False, 'num_load': 12, 'num_store': 5, 'num_reduction': 4, 'autotune_hints': set(), 'tiling_scores': {'x': 704, 'r0_': 1572864}, 'backend_hash': 'A7974629523B4D795A8C0C90B2297822F17759D8C9C132184692A517F69FBE14', 'assert_indirect_indexing': True, 'autotune_local_cache': True, 'autotune_pointwise': True, 'autotune_remote_cache': None, 'force_disable_caches': False, 'dynamic_scale_rblock': True, 'incremental_autotune': False, 'max_autotune': False, 'max_autotune_pointwise': False, 'min_split_scan_rblock': 256, 'spill_threshold': 16, 'store_cubin': False, 'deterministic': False, 'batch_invariant': False, 'force_filter_reduction_configs': False, 'mix_order_reduction_allow_multi_stages': True, 'dynamic_disable_pipelining': True, 'are_deterministic_algorithms_enabled': False}
)
@triton.jit
def triton_red_fused_add_convolution_backward_native_batch_norm_backward_threshold_backward_3(in_out_ptr0, in_ptr0, in_ptr1, in_ptr2, in_ptr3, in_ptr4, in_ptr5, out_ptr0, out_ptr1, out_ptr3, out_ptr4, xnumel, r0_numel, XBLOCK : tl.constexpr, R0_BLOCK : tl.constexpr):
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
    _tmp2 = tl.full([XBLOCK, R0_BLOCK], 0, tl.float32)
    _tmp11 = tl.full([XBLOCK, R0_BLOCK], 0, tl.float32)
    tmp14 = tl.load(in_ptr3 + (x0), xmask, eviction_policy='evict_last')
    _tmp18 = tl.full([XBLOCK, R0_BLOCK], 0, tl.float32)
    for r0_offset in tl.range(0, r0_numel, R0_BLOCK):
        r0_index = r0_offset + r0_base
        r0_mask = r0_index < r0_numel
        roffset = r0_offset
        rindex = r0_index
        r0_1 = (r0_index % 1024)
        r0_2 = r0_index // 1024
        tmp0 = tl.load(in_ptr0 + (r0_1 + 1024*x0 + 16384*r0_2), r0_mask & xmask, eviction_policy='evict_last', other=0.0)
        tmp4 = tl.load(in_out_ptr0 + (r0_1 + 1024*x0 + 16384*r0_2), r0_mask & xmask, eviction_policy='evict_last', other=0.0)
        tmp7 = tl.load(in_ptr1 + (r0_1 + 1024*x0 + 16384*r0_2), r0_mask & xmask, eviction_policy='evict_last', other=0.0)
        tmp13 = tl.load(in_ptr2 + (r0_1 + 1024*x0 + 16384*r0_2), r0_mask & xmask, eviction_policy='evict_last', other=0.0)
        tmp1 = tl.broadcast_to(tmp0, [XBLOCK, R0_BLOCK])
        tmp3 = _tmp2 + tmp1
        _tmp2 = tl.where(r0_mask & xmask, tmp3, _tmp2)
        tmp5 = tl.full([1, 1], 0.0, tl.float32)
        tmp6 = tmp4 <= tmp5
        tmp8 = tmp0 + tmp7
        tmp9 = tl.where(tmp6, tmp5, tmp8)
        tmp10 = tl.broadcast_to(tmp9, [XBLOCK, R0_BLOCK])
        tmp12 = _tmp11 + tmp10
        _tmp11 = tl.where(r0_mask & xmask, tmp12, _tmp11)
        tmp15 = tmp13 - tmp14
        tmp16 = tmp9 * tmp15
        tmp17 = tl.broadcast_to(tmp16, [XBLOCK, R0_BLOCK])
        tmp19 = _tmp18 + tmp17
        _tmp18 = tl.where(r0_mask & xmask, tmp19, _tmp18)
    tmp2 = tl.sum(_tmp2, 1)[:, None]
    tmp11 = tl.sum(_tmp11, 1)[:, None]
    tmp18 = tl.sum(_tmp18, 1)[:, None]
    tl.store(out_ptr0 + (x0), tmp2, xmask)
    tl.store(out_ptr1 + (x0), tmp11, xmask)
    tmp20 = tl.load(in_ptr4 + (x0), xmask)
    tmp21 = tmp18 * tmp20
    tl.store(out_ptr3 + (x0), tmp21, xmask)
    tmp33 = tl.load(in_ptr4 + (x0), xmask, eviction_policy='evict_last')
    tmp40 = tl.load(in_ptr5 + (x0), xmask, eviction_policy='evict_last')
    _tmp44 = tl.full([XBLOCK, R0_BLOCK], 0, tl.float32)
    for r0_offset in tl.range(0, r0_numel, R0_BLOCK):
        r0_index = r0_offset + r0_base
        r0_mask = r0_index < r0_numel
        roffset = r0_offset
        rindex = r0_index
        r0_1 = (r0_index % 1024)
        r0_2 = r0_index // 1024
        tmp22 = tl.load(in_out_ptr0 + (r0_1 + 1024*x0 + 16384*r0_2), r0_mask & xmask, eviction_policy='evict_first', other=0.0)
        tmp25 = tl.load(in_ptr0 + (r0_1 + 1024*x0 + 16384*r0_2), r0_mask & xmask, eviction_policy='evict_first', other=0.0)
        tmp26 = tl.load(in_ptr1 + (r0_1 + 1024*x0 + 16384*r0_2), r0_mask & xmask, eviction_policy='evict_first', other=0.0)
        tmp29 = tl.load(in_ptr2 + (r0_1 + 1024*x0 + 16384*r0_2), r0_mask & xmask, eviction_policy='evict_first', other=0.0)
        tmp23 = tl.full([1, 1], 0.0, tl.float32)
        tmp24 = tmp22 <= tmp23
        tmp27 = tmp25 + tmp26
        tmp28 = tl.where(tmp24, tmp23, tmp27)
        tmp30 = tmp29 - tmp14
        tmp31 = tl.full([1, 1], 0.000244140625, tl.float32)
        tmp32 = tmp18 * tmp31
        tmp34 = tmp33 * tmp33
        tmp35 = tmp32 * tmp34
        tmp36 = tmp30 * tmp35
        tmp37 = tmp28 - tmp36
        tmp38 = tmp11 * tmp31
        tmp39 = tmp37 - tmp38
        tmp41 = tmp33 * tmp40
        tmp42 = tmp39 * tmp41
        tmp43 = tl.broadcast_to(tmp42, [XBLOCK, R0_BLOCK])
        tmp45 = _tmp44 + tmp43
        _tmp44 = tl.where(r0_mask & xmask, tmp45, _tmp44)
        tl.store(in_out_ptr0 + (r0_1 + 1024*x0 + 16384*r0_2), tmp42, r0_mask & xmask)
    tmp44 = tl.sum(_tmp44, 1)[:, None]
    tl.store(out_ptr4 + (x0), tmp44, xmask)
''', device_str='cuda')


# kernel path: /tmp/cache/up/cupl3n5l2nrpbugjdvzlzfsqvaul22npd54kspjz6f2ge7dmwfxx.py
# Topologically Sorted Source Nodes: [sum_1], Original ATen: [aten.sum]
# Source node to ATen node mapping:
#   sum_1 => sum_1
# Graph fragment:
#   %tangents_1 : Tensor "f32[4, 10][10, 1]cuda:0" = PlaceHolder[target=tangents_1]
#   %sum_1 : Tensor "f32[1, 10][10, 1]cuda:0"[num_users=1] = call_function[target=torch.ops.aten.sum.dim_IntList](args = (%tangents_1, [0], True), kwargs = {})
#   return %sum_1
triton_poi_fused_sum_4 = async_compile.triton('triton_poi_fused_sum_4', '''
import triton
import triton.language as tl

from torch._inductor.runtime import triton_helpers, triton_heuristics
from torch._inductor.runtime.triton_helpers import libdevice, math as tl_math
from torch._inductor.runtime.hints import AutotuneHint, ReductionHint, TileHint, DeviceProperties
triton_helpers.set_driver_to_gpu()

@triton_heuristics.pointwise(
    size_hints={'x': 16}, 
    filename=__file__,
    triton_meta={'signature': {'in_ptr0': '*fp32', 'out_ptr0': '*fp32', 'xnumel': 'i32', 'XBLOCK': 'constexpr'}, 'device': DeviceProperties(type='cuda', index=0, multi_processor_count=132, cc=90, major=9, regs_per_multiprocessor=65536, max_threads_per_multi_processor=2048, max_threads_per_block=1024, warp_size=32), 'constants': {}, 'native_matmul': False, 'enable_fp_fusion': True, 'launch_pdl': False, 'disable_ftz': False, 'configs': [{(0,): [['tt.divisibility', 16]], (1,): [['tt.divisibility', 16]]}]},
    inductor_meta={'grid_type': 'Grid1D', 'kernel_name': 'triton_poi_fused_sum_4', 'mutated_arg_names': [], 'optimize_mem': True, 'no_x_dim': False, 'atomic_add_found': False, 'num_load': 4, 'num_store': 1, 'num_reduction': 0, 'autotune_hints': set(), 'tiling_scores': {'x': 240}, 'backend_hash': 'A7974629523B4D795A8C0C90B2297822F17759D8C9C132184692A517F69FBE14', 'assert_indirect_indexing': True, 'autotune_local_cache': True, 'autotune_pointwise': True, 'autotune_remote_cache': None, 'force_disable_caches': False, 'dynamic_scale_rblock': True, 'incremental_autotune': False, 'max_autotune': False, 'max_autotune_pointwise': False, 'min_split_scan_rblock': 256, 'spill_threshold': 16, 'store_cubin': False, 'deterministic': False, 'batch_invariant': False, 'force_filter_reduction_configs': False, 'mix_order_reduction_allow_multi_stages': True, 'dynamic_disable_pipelining': True, 'are_deterministic_algorithms_enabled': False},
    min_elem_per_thread=0
)
@triton.jit
def triton_poi_fused_sum_4(in_ptr0, out_ptr0, xnumel, XBLOCK : tl.constexpr):
    xnumel = 10
    xoffset = tl.program_id(0) * XBLOCK
    xindex = xoffset + tl.arange(0, XBLOCK)[:]
    xmask = xindex < xnumel
    x0 = xindex
    tmp0 = tl.load(in_ptr0 + (x0), xmask)
    tmp1 = tl.load(in_ptr0 + (10 + x0), xmask)
    tmp3 = tl.load(in_ptr0 + (20 + x0), xmask)
    tmp5 = tl.load(in_ptr0 + (30 + x0), xmask)
    tmp2 = tmp0 + tmp1
    tmp4 = tmp2 + tmp3
    tmp6 = tmp4 + tmp5
    tl.store(out_ptr0 + (x0), tmp6, xmask)
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
        primals_1, primals_3, primals_7, primals_9, primals_11, convolution, squeeze_1, relu, getitem_3, view, le, unsqueeze_6, tangents_1 = args
        args.clear()
        assert_size_stride(tangents_1, (4, 10), (10, 1), 'input')
        assert_size_stride(primals_11, (10, 1024), (1024, 1), 'input')
        with torch.cuda._DeviceGuard(0):
            torch.cuda.set_device(0)
            tangents_1 = copy_if_misaligned(tangents_1)
            buf0 = empty_strided_cuda((4, 1024), (1024, 1), torch.float32)
            # Topologically Sorted Source Nodes: [linear, permute_1, mm], Original ATen: [aten.t, aten.mm]
            # [Provenance debug handles] extern_kernels.mm:1
            extern_kernels.mm(tangents_1, primals_11, out=buf0)
            del primals_11
            buf3 = empty_strided_cuda((64, 1024), (1024, 1), torch.float32)
            # Topologically Sorted Source Nodes: [view_2, full_1, view_3, max_pool2d, view_4, scatter_add], Original ATen: [aten.view, aten.max_pool2d_with_indices_backward, aten.max_pool2d_with_indices]
            # [Provenance debug handles] triton_poi_fused_max_pool2d_with_indices_max_pool2d_with_indices_backward_view_0:2
            raw_stream0 = get_raw_stream(0)
            triton_poi_fused_max_pool2d_with_indices_max_pool2d_with_indices_backward_view_0.run(buf3, 65536, stream=raw_stream0)
            assert_size_stride(getitem_3, (4, 16, 8, 8), (1024, 64, 8, 1), 'input')
            # Topologically Sorted Source Nodes: [view_2, full_1, view_3, max_pool2d, view_4, scatter_add], Original ATen: [aten.view, aten.max_pool2d_with_indices_backward, aten.max_pool2d_with_indices]
            # [Provenance debug handles] triton_poi_fused_max_pool2d_with_indices_max_pool2d_with_indices_backward_view_1:3
            raw_stream0 = get_raw_stream(0)
            triton_poi_fused_max_pool2d_with_indices_max_pool2d_with_indices_backward_view_1.run(getitem_3, buf0, buf3, 4096, stream=raw_stream0)
            del buf0
            del getitem_3
            assert_size_stride(le, (4, 16, 32, 32), (16384, 1024, 32, 1), 'input')
            buf5 = empty_strided_cuda((4, 16, 32, 32), (16384, 1024, 32, 1), torch.float32)
            # Topologically Sorted Source Nodes: [view_5, scalar_tensor, where], Original ATen: [aten.max_pool2d_with_indices_backward, aten.threshold_backward]
            # [Provenance debug handles] triton_poi_fused_max_pool2d_with_indices_backward_threshold_backward_2:4
            raw_stream0 = get_raw_stream(0)
            triton_poi_fused_max_pool2d_with_indices_backward_threshold_backward_2.run(le, buf3, buf5, 65536, stream=raw_stream0)
            del buf3
            del le
            assert_size_stride(relu, (4, 16, 32, 32), (16384, 1024, 32, 1), 'input')
            assert_size_stride(primals_9, (16, 16, 3, 3), (144, 9, 3, 1), 'input')
            # Topologically Sorted Source Nodes: [convolution_backward], Original ATen: [aten.convolution_backward]
            # [Provenance debug handles] torch.ops.aten.convolution_backward.default:5
            buf7 = torch.ops.aten.convolution_backward.default(buf5, relu, primals_9, [16], (1, 1), (1, 1), (1, 1), False, (0, 0), 1, [True, True, False])
            del primals_9
            buf8 = buf7[0]
            assert_size_stride(buf8, (4, 16, 32, 32), (16384, 1024, 32, 1), 'torch.ops.aten.convolution_backward.default')
            assert_alignment(buf8, 16, 'torch.ops.aten.convolution_backward.default')
            buf9 = buf7[1]
            assert_size_stride(buf9, (16, 16, 3, 3), (144, 9, 3, 1), 'torch.ops.aten.convolution_backward.default')
            assert_alignment(buf9, 16, 'torch.ops.aten.convolution_backward.default')
            del buf7
            assert_size_stride(convolution, (4, 16, 32, 32), (16384, 1024, 32, 1), 'input')
            assert_size_stride(unsqueeze_6, (1, 16, 1, 1), (16, 1, 1, 1), 'input')
            assert_size_stride(squeeze_1, (16, ), (1, ), 'input')
            assert_size_stride(primals_7, (16, ), (1, ), 'input')
            buf6 = empty_strided_cuda((16, ), (1, ), torch.float32)
            buf10 = empty_strided_cuda((16, ), (1, ), torch.float32)
            buf13 = empty_strided_cuda((16, ), (1, ), torch.float32)
            buf12 = relu; del relu  # reuse
            buf14 = empty_strided_cuda((16, ), (1, ), torch.float32)
            # Topologically Sorted Source Nodes: [scalar_tensor, sum_2, add_6, le_1, where_1, sum_3, sub_1, mul_7, sum_4, mul_8, unsqueeze_7, unsqueeze_8, unsqueeze_9, mul_9, mul_10, mul_11, unsqueeze_10, unsqueeze_11, unsqueeze_12, mul_12, unsqueeze_13, unsqueeze_14, unsqueeze_15, mul_13, sub_3, sub_4, mul_14, mul_15, sum_5], Original ATen: [aten.threshold_backward, aten.convolution_backward, aten.add, aten.native_batch_norm_backward]
            # [Provenance debug handles] triton_red_fused_add_convolution_backward_native_batch_norm_backward_threshold_backward_3:6
            raw_stream0 = get_raw_stream(0)
            triton_red_fused_add_convolution_backward_native_batch_norm_backward_threshold_backward_3.run(buf12, buf5, buf8, convolution, unsqueeze_6, squeeze_1, primals_7, buf6, buf10, buf13, buf14, 16, 4096, stream=raw_stream0)
            del buf5
            del buf8
            del convolution
            del primals_7
            del squeeze_1
            del unsqueeze_6
            assert_size_stride(primals_3, (4, 3, 32, 32), (3072, 1024, 32, 1), 'input')
            assert_size_stride(primals_1, (16, 3, 3, 3), (27, 9, 3, 1), 'input')
            # Topologically Sorted Source Nodes: [convolution_backward_1], Original ATen: [aten.convolution_backward]
            # [Provenance debug handles] torch.ops.aten.convolution_backward.default:7
            buf15 = torch.ops.aten.convolution_backward.default(buf12, primals_3, primals_1, [16], (1, 1), (1, 1), (1, 1), False, (0, 0), 1, [False, True, False])
            del buf12
            del primals_1
            del primals_3
            buf16 = buf15[1]
            assert_size_stride(buf16, (16, 3, 3, 3), (27, 9, 3, 1), 'torch.ops.aten.convolution_backward.default')
            assert_alignment(buf16, 16, 'torch.ops.aten.convolution_backward.default')
            del buf15
            buf2 = empty_strided_cuda((1, 10), (10, 1), torch.float32)
            # Topologically Sorted Source Nodes: [sum_1], Original ATen: [aten.sum]
            # [Provenance debug handles] triton_poi_fused_sum_4:8
            raw_stream0 = get_raw_stream(0)
            triton_poi_fused_sum_4.run(tangents_1, buf2, 10, stream=raw_stream0)
            assert_size_stride(view, (4, 1024), (1024, 1), 'input')
            buf1 = empty_strided_cuda((10, 1024), (1024, 1), torch.float32)
            # Topologically Sorted Source Nodes: [permute_2, permute_4], Original ATen: [aten.t, aten.mm]
            # [Provenance debug handles] extern_kernels.mm:9
            extern_kernels.mm(reinterpret_tensor(tangents_1, (10, 4), (1, 10), 0), view, out=buf1)
            del tangents_1
            del view
        return (buf16, buf14, None, None, None, None, buf13, buf10, buf9, buf6, buf1, reinterpret_tensor(buf2, (10, ), (1, ), 0), )

runner = Runner(partitions=[])
call = runner.call
recursively_apply_fns = runner.recursively_apply_fns


def get_args():
    from torch._dynamo.testing import rand_strided
    primals_1 = rand_strided((16, 3, 3, 3), (27, 9, 3, 1), device='cuda:0', dtype=torch.float32)
    primals_3 = rand_strided((4, 3, 32, 32), (3072, 1024, 32, 1), device='cuda:0', dtype=torch.float32)
    primals_7 = rand_strided((16, ), (1, ), device='cuda:0', dtype=torch.float32)
    primals_9 = rand_strided((16, 16, 3, 3), (144, 9, 3, 1), device='cuda:0', dtype=torch.float32)
    primals_11 = rand_strided((10, 1024), (1024, 1), device='cuda:0', dtype=torch.float32)
    convolution = rand_strided((4, 16, 32, 32), (16384, 1024, 32, 1), device='cuda:0', dtype=torch.float32)
    squeeze_1 = rand_strided((16, ), (1, ), device='cuda:0', dtype=torch.float32)
    relu = rand_strided((4, 16, 32, 32), (16384, 1024, 32, 1), device='cuda:0', dtype=torch.float32)
    getitem_3 = rand_strided((4, 16, 8, 8), (1024, 64, 8, 1), device='cuda:0', dtype=torch.int8)
    view = rand_strided((4, 1024), (1024, 1), device='cuda:0', dtype=torch.float32)
    le = rand_strided((4, 16, 32, 32), (16384, 1024, 32, 1), device='cuda:0', dtype=torch.bool)
    unsqueeze_6 = rand_strided((1, 16, 1, 1), (16, 1, 1, 1), device='cuda:0', dtype=torch.float32)
    tangents_1 = rand_strided((4, 10), (10, 1), device='cuda:0', dtype=torch.float32)
    return [primals_1, primals_3, primals_7, primals_9, primals_11, convolution, squeeze_1, relu, getitem_3, view, le, unsqueeze_6, tangents_1]


def benchmark_compiled_module(args, times=10, repeat=10):
    from torch._inductor.utils import print_performance
    fn = lambda: call(list(args))
    return print_performance(fn, times=times, repeat=repeat, device='cuda')


if __name__ == "__main__":
    from torch._inductor.wrapper_benchmark import compiled_module_main
    args = get_args()
    compiled_module_main('None', lambda times, repeat: benchmark_compiled_module(args, times=times, repeat=repeat))
