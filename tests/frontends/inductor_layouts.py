"""Wrappers in the forms that versions of Inductor write, from PyTorch 1.13's to what follows 2.13: made up in the way of the real ones."""

# ruff: noqa: E501

from __future__ import annotations

import textwrap

HEAD = "# AOT ID: ['0_inference']\nimport torch\nfrom torch import empty_strided, device\nasync_compile = AsyncCompile()\n"


def triton(name: str, signature: dict[str, str], body: str) -> str:
    """A kernel as Inductor hands it to Triton's compiler."""
    params = ", ".join(signature)
    sig = "{" + ", ".join(f"'{n}': '{k}'" for n, k in signature.items()) + "}"
    return f"""
{name} = async_compile.triton('{name}', '''
import triton
@triton_heuristics.pointwise(size_hints={{'x': 16}}, triton_meta={{'signature': {sig}, 'constants': {{}}}}, inductor_meta={{'mutated_arg_names': []}})
@triton.jit
def {name}({params}, XBLOCK : tl.constexpr):
{body}
''', device_str='cuda')
"""


POI = triton(
    "triton_poi_0",
    {"in_ptr0": "*fp32", "out_ptr0": "*fp32", "xnumel": "i32"},
    """    xnumel = 256
    xoffset = tl.program_id(0) * XBLOCK
    xindex = xoffset + tl.arange(0, XBLOCK)[:]
    xmask = xindex < xnumel
    x0 = xindex
    tmp0 = tl.load(in_ptr0 + (x0), xmask)
    tmp1 = tl.full([1], 2.0, tl.float32)
    tmp2 = tmp0 * tmp1
    tl.store(out_ptr0 + (x0), tmp2, xmask)""",
)
RUNNER = """
class Runner:
    def __init__(self, partitions):
        self.partitions = partitions

    def call(self, args):
%s
runner = Runner(partitions=[%s])
call = runner.call
"""


def inside(text: str) -> str:
    """The body of a method."""
    return textwrap.indent(text.strip("\n"), " " * 8) + "\n"


LAYOUTS: dict[str, str] = {}
"""By what is peculiar to them."""
LAYOUTS["grouped"] = (
    HEAD
    + POI
    + RUNNER
    % (
        inside("""
arg0_1, arg1_1 = args
args.clear()
assert_size_stride_grouped((arg0_1, arg1_1), ((16, 16), (16, )), ((16, 1), (1, )), 'input')
with torch.cuda._DeviceGuard(0):
    torch.cuda.set_device(0)
    arg0_1 = copy_misaligned(arg0_1)
    buf0 = empty_strided_cuda((16, 16), (16, 1), torch.float32)
    raw_stream0 = get_raw_stream(0)
    triton_poi_0.run(arg0_1, buf0, 256, stream=raw_stream0)
    del arg0_1
return (buf0, )"""),
        "",
    )
)
LAYOUTS["item"] = (
    HEAD
    + triton("triton_poi_1", {"in_ptr0": "fp32", "in_ptr1": "*fp32", "out_ptr0": "*fp32", "xnumel": "i32"}, "    pass")
    + RUNNER
    % (
        inside("""
arg0_1, arg1_1 = args
args.clear()
assert_size_stride(arg0_1, (), ())
assert_size_stride(arg1_1, (16, 16), (16, 1))
with torch.cuda._DeviceGuard(0):
    torch.cuda.set_device(0)
    buf0 = empty_strided_cuda((16, 16), (16, 1), torch.float32)
    stream0 = get_raw_stream(0)
    triton_poi_1.run(arg0_1.item(), arg1_1, buf0, 256, stream=stream0)
    del arg0_1
return (buf0, )"""),
        "",
    )
)
LAYOUTS["random"] = (
    HEAD
    + POI
    + """
def call(args):
    arg0_1, = args
    args.clear()
    assert_size_stride(arg0_1, (16, 16), (16, 1))
    with torch.cuda._DeviceGuard(0):
        torch.cuda.set_device(0)
        buf0 = empty_strided_cuda((2, ), (1, ), torch.int64)
        # Topologically Sorted Source Nodes: [], Original ATen: []
        aten.randint.low_out(-9223372036854775808, 9223372036854775807, [2], out=buf0)
        buf1 = empty_strided_cuda((16, 16), (16, 1), torch.float32)
        stream0 = get_raw_stream(0)
        triton_poi_0.run(arg0_1, buf1, 256, grid=grid(256), stream=stream0)
        del arg0_1
    return (buf1, buf0, )
"""
)
LAYOUTS["streams"] = (
    HEAD
    + POI
    + RUNNER
    % (
        inside("""
arg0_1, arg1_1 = args
args.clear()
s72 = arg0_1
with torch.cuda._DeviceGuard(0):
    torch.cuda.set_device(0)
    default_stream = torch.cuda.current_stream()
    stream1 = get_external_object_by_index(2)
    with torch.cuda.stream(stream1):
        # Unsorted Source Nodes: [wait_event], Original ATen: [streams.wait_event]
        torch.ops.streams.wait_event.default(1, 2)
        assert_size_stride(arg1_1, (s72, ), (1, ))
    with torch.cuda.stream(default_stream):
        arg1_1 = copy_misaligned(arg1_1)
        buf0 = empty_strided_cuda((s72, ), (1, ), torch.float32)
        stream0 = get_raw_stream(0)
        triton_poi_0.run(arg1_1, buf0, s72, stream=stream0)
        torch.ops.streams.record_event.default(2, 1)
return (buf0, s72, )"""),
        "",
    )
)
LAYOUTS["numbered"] = (
    HEAD.replace("# AOT ID: ['0_inference']\n", "from torch._inductor.codecache import AsyncCompile\n")
    + """
triton_poi_fused_0 = async_compile.triton('triton_', '''
import triton
from torch._inductor.ir import ReductionHint
@pointwise(size_hints=[256], filename=__file__, triton_meta={'signature': {0: '*fp32', 1: '*fp32', 2: 'i32'}, 'device': 0, 'constants': {}, 'mutated_arg_names': [], 'configs': [instance_descriptor(divisible_by_16=(0, 1, 2), equal_to_1=())]})
@triton.jit
def triton_(in_ptr0, out_ptr0, xnumel, XBLOCK : tl.constexpr):
    xnumel = 256
    xoffset = tl.program_id(0) * XBLOCK
    xindex = xoffset + tl.arange(0, XBLOCK)[:]
    xmask = xindex < xnumel
    x0 = xindex
    tmp0 = tl.load(in_ptr0 + (x0), xmask)
    tmp1 = tl.sigmoid(tmp0)
    tl.store(out_ptr0 + (x0), tmp1, xmask)
''')

async_compile.wait(globals())
del async_compile

def call(args):
    arg0_1, = args
    args.clear()
    assert_size_stride(arg0_1, (16, 16), (16, 1))
    with torch.cuda._DeviceGuard(0):
        torch.cuda.set_device(0) # no-op to ensure context
        buf0 = empty_strided((16, 16), (16, 1), device='cuda', dtype=torch.float32)
        # Source Nodes: [sigmoid], Original ATen: [aten.sigmoid]
        stream0 = get_cuda_stream(0)
        triton_poi_fused_0.run(arg0_1, buf0, 256, grid=grid(256), stream=stream0)
        del arg0_1
        return (buf0, )
"""
)
LAYOUTS["first"] = """
from ctypes import c_void_p, c_long
import torch
from torch import empty_strided, as_strided, device
from torch._inductor.codecache import AsyncCompile
aten = torch.ops.aten
async_compile = AsyncCompile()
kernel0 = async_compile.triton('''
import triton
@pointwise(size_hints=[256], filename=__file__, meta={'signature': {0: '*fp32', 1: '*fp32', 2: 'i32'}, 'device': 0, 'constants': {}, 'configs': [instance_descriptor(divisible_by_16=(0, 1, 2), equal_to_1=())]})
@triton.jit
def kernel(in_ptr0, out_ptr0, xnumel, XBLOCK : tl.constexpr):
    xnumel = 256
    xoffset = tl.program_id(0) * XBLOCK
    xindex = xoffset + tl.reshape(tl.arange(0, XBLOCK), [XBLOCK])
    x0 = xindex
    tmp0 = tl.load(in_ptr0 + (x0), None)
    tl.store(out_ptr0 + (x0), tmp0, None)
''')
async_compile.wait(globals())
del async_compile

def call(args):
    primals_1, primals_2 = args
    args.clear()
    with torch.cuda.device(0):
        buf0 = empty_strided((16, 16), (16, 1), device='cuda', dtype=torch.float32)
        stream0 = get_cuda_stream(0)
        kernel0.run(primals_1, buf0, 256, grid=grid(256), stream=stream0)
        buf1 = empty_strided((16, 16), (16, 1), device='cuda', dtype=torch.float32)
        aten.mm.out(buf0, as_strided(primals_2, (16, 16), (1, 16)), out=buf1)
        del buf0
        return (buf1, as_strided(primals_2, (16, 16), (1, 16)), )

"""
LAYOUTS["asserts"] = (
    HEAD
    + """
def call(args):
    primals_1, primals_2 = args
    args.clear()
    assert_size_stride(primals_1, (8, 3, 3, 3), (27, 9, 3, 1))
    assert_size_stride(primals_2, (2, 3, 8, 8), (192, 64, 8, 1))
    with torch.cuda._DeviceGuard(0):
        buf0 = extern_kernels.convolution(primals_2, primals_1, stride=(1, 1), padding=(1, 1), dilation=(1, 1), transposed=False, output_padding=(0, 0), groups=1, bias=None)
        assert buf0.size() == (2, 8, 8, 8)
        assert buf0.stride() == (512, 64, 8, 1)
        return (buf0, primals_1, primals_2, )
"""
)
LAYOUTS["multi"] = (
    HEAD
    + POI
    + POI.replace("triton_poi_0", "triton_poi_1")
    + """
multi_kernel_0 = async_compile.multi_kernel('multi_kernel_0', [triton_poi_0, triton_poi_1])
"""
    + RUNNER
    % (
        inside("""
arg0_1, = args
args.clear()
assert_size_stride(arg0_1, (16, 16), (16, 1))
with torch.cuda._DeviceGuard(0):
    torch.cuda.set_device(0)
    buf0 = empty_strided_cuda((16, 16), (16, 1), torch.float32)
    stream0 = get_raw_stream(0)
    multi_kernel_0.run(arg0_1, buf0, 256, stream=stream0)
    del arg0_1
return (buf0, )"""),
        "",
    )
)
LAYOUTS["partition"] = (
    HEAD
    + POI
    + """
def partition_0(args):
    arg0_1, arg1_1 = args
    args.clear()
    with torch.cuda._DeviceGuard(0):
        torch.cuda.set_device(0)
        arg0_1 = copy_misaligned(arg0_1)
        buf1 = empty_strided_cuda((16, 16), (16, 1), torch.float32)
        stream0 = get_raw_stream(0)
        triton_poi_0.run(arg0_1, buf1, 256, stream=stream0)
        del arg0_1
        del arg1_1
    return (buf1, )


async_compile.wait(globals())
del async_compile
"""
    + RUNNER
    % (
        inside("""
arg0_1, arg1_1 = args
args.clear()
assert_size_stride(arg0_1, (16, 16), (16, 1))
partition0_args = [arg0_1, arg1_1]
del arg0_1, arg1_1
(buf1,) = self.partitions[0](partition0_args)
del partition0_args
return (buf1, )"""),
        "partition_0,",
    )
)
LAYOUTS["pool"] = (
    HEAD
    + POI
    + """
def call(args):
    arg0_1, = args
    args.clear()
    assert_size_stride(arg0_1, (16, 16), (16, 1))
    with torch.cuda._DeviceGuard(0):
        torch.cuda.set_device(0)
        pool1 = empty_strided_cuda((2048, ), (1, ), torch.uint8)
        buf0 = alloc_from_pool(pool1, 0, torch.float32, (16, 16), (16, 1))
        stream0 = get_raw_stream(0)
        triton_poi_0.run(arg0_1, buf0, 256, stream=stream0)
        del arg0_1
        buf1 = alloc_from_pool(pool1, 1024, torch.float32, (16, 16), (16, 1))
        triton_poi_0.run(buf0, buf1, 256, stream=stream0)
        buf2 = empty_strided_cuda((16, 16), (16, 1), torch.float32)
        triton_poi_0.run(buf1, buf2, 256, stream=stream0)
        del pool1, buf0, buf1
    return (buf2, )
"""
)
LAYOUTS["collective"] = HEAD + RUNNER % (
    inside("""
arg0_1, = args
args.clear()
assert_size_stride(arg0_1, (16, 16), (16, 1))
with torch.cuda._DeviceGuard(0):
    torch.cuda.set_device(0)
    # Topologically Sorted Source Nodes: [all_gather_into_tensor], Original ATen: [_c10d_functional.all_gather_into_tensor]
    buf0 = torch.ops._c10d_functional.all_gather_into_tensor.default(arg0_1, 2, '0')
    assert_size_stride(buf0, (32, 16), (16, 1), 'torch.ops._c10d_functional.all_gather_into_tensor.default')
    torch.ops._c10d_functional.wait_tensor.default(buf0)
    del arg0_1
return (buf0, )"""),
    "",
)
LAYOUTS["dropout"] = HEAD + RUNNER % (
    inside("""
arg0_1, = args
args.clear()
assert_size_stride(arg0_1, (16, 16), (16, 1))
with torch.cuda._DeviceGuard(0):
    torch.cuda.set_device(0)
    buf0 = torch.ops.aten.native_dropout.default(arg0_1, 0.1, True)
    del arg0_1
    buf1 = buf0[0]
    assert_size_stride(buf1, (16, 16), (16, 1), 'torch.ops.aten.native_dropout.default')
    assert_alignment(buf1, 16, 'torch.ops.aten.native_dropout.default')
    buf2 = buf0[1]
    assert_size_stride(buf2, (16, 16), (16, 1), 'torch.ops.aten.native_dropout.default')
    del buf0
return (buf1, buf2, )"""),
    "",
)
LAYOUTS["branches"] = (
    HEAD
    + POI
    + """
def true_graph_0(args):
    true_graph_0_arg0_1, = args
    args.clear()
    true_graph_0_buf0 = empty_strided_cuda((16, 16), (16, 1), torch.float32)
    stream0 = get_raw_stream(0)
    triton_poi_0.run(true_graph_0_arg0_1, true_graph_0_buf0, 256, stream=stream0)
    return (true_graph_0_buf0, )
"""
    + RUNNER
    % (
        inside("""
arg0_1, arg1_1 = args
args.clear()
assert_size_stride(arg0_1, (), ())
assert_size_stride(arg1_1, (16, 16), (16, 1))
with torch.cuda._DeviceGuard(0):
    torch.cuda.set_device(0)
    buf0 = [None] * 1
    if arg0_1.item():
        # subgraph: true_graph_0
        true_graph_0_args = [arg1_1]
        del arg1_1
        (buf0[0],) = true_graph_0(true_graph_0_args)
    else:
        true_graph_0_args = [arg1_1]
        (buf0[0],) = true_graph_0(true_graph_0_args)
    del arg0_1
    buf1 = buf0[0]
    assert_size_stride(buf1, (16, 16), (16, 1))
    del buf0
return (buf1, )"""),
        "",
    )
)
LAYOUTS["cvoid"] = (
    HEAD
    + """
cpp_fused_0 = async_compile.cpp('''
#include "x.h"
extern "C" void kernel(const float* in_ptr0, float* out_ptr0)
{
}
''')
async_compile.wait(globals())
del async_compile

def call(args):
    arg0_1, = args
    args.clear()
    assert_size_stride(arg0_1, (16, 16), (16, 1))
    buf0 = empty_strided_cpu((16, 16), (16, 1), torch.float32)
    cpp_fused_0(c_void_p(arg0_1.data_ptr()), c_void_p(buf0.data_ptr()))
    del arg0_1
    return (buf0, )
"""
)

for _name, _inputs in {"asserts": {"primals_1": "(8, 3, 3, 3)", "primals_2": "(2, 3, 8, 8)"}, "collective": {"arg0_1": "(16, 16)"}}.items():
    LAYOUTS[_name] += "\ndef benchmark_compiled_module(times=10, repeat=10):\n"
    for _input, _shape in _inputs.items():
        LAYOUTS[_name] += f"    {_input} = rand_strided({_shape}, {_shape}, device='cuda:0', dtype=torch.float32)\n"
LAYOUTS["dropout"] += LAYOUTS["collective"].rpartition("\n\n")[2]

ALLOCATED = {
    "grouped": [1024], "item": [1024], "random": [16, 1024], "numbered": [1024], "first": [1024, 1024, -1024], "asserts": [4096],
    "multi": [1024], "partition": [1024], "pool": [2048, 1024, -2048], "collective": [2048], "dropout": [1024, 256], "cvoid": [1024],
}  # fmt: skip
"""Signed sizes in the order of the wrapper, by hand."""
