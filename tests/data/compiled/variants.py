"""What `torch.compile` is used for, one variant a function: `python variants.py NAME` prints what the allocator counted in each iteration.

`variants.json` has what PyTorch's CUDA build printed over the stand-ins, where graphs are captured too.
"""
import os
import sys
import warnings

import torch
import torch._dynamo
warnings.filterwarnings("ignore")
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import models
import torch.nn.functional as F
torch.backends.cuda.enable_cudnn_sdp(False)
torch.manual_seed(0)
K=("requested_bytes","allocated_bytes","active_bytes","reserved_bytes")
def c(tag):
    s=torch.cuda.memory_stats(); print(tag, " ".join(f"{k.split('_')[0][:3]} {s[k+'.all.peak']}/{s[k+'.all.current']}" for k in K), flush=True)
def it(n, f, record=True):
    for i in range(n):
        torch.cuda.reset_peak_memory_stats()
        if i==n-1 and record: torch.cuda.memory._record_memory_history(max_entries=10**6, context=None)
        f(i); c(f"it{i}")
    if record:
        t=torch.cuda.memory._snapshot()["device_traces"][0]
        ev=[e["size"] if e["action"]=="alloc" else -e["size"] for e in t if e["action"] in ("alloc","free_completed")]
        print("EV",len(ev),ev)
        torch.cuda.memory._record_memory_history(None)
def make(name, **kw):
    m,i,t=getattr(models,name)(**kw); return m.cuda(), i, t
def loss(o,t): return F.mse_loss(o,t) if t.is_floating_point() else F.cross_entropy(o.flatten(0,-2),t.flatten())


def graph_break():
    m,x,t=make("mlp",depth=2,width=256)
    class M(torch.nn.Module):
        def __init__(s,m): super().__init__(); s.m=m
        def forward(s,x):
            for i,l in enumerate(s.m):
                x=l(x)
                if i==4: torch._dynamo.graph_break(); 
            return x
    m=M(m); o=torch.optim.SGD(m.parameters(),lr=.1); k=torch.compile(m)
    def f(i):
        l=loss(k(*x),t); l.backward(); o.step(); o.zero_grad()
    it(3,f)


def printing():
    m,x,t=make("mlp",depth=1,width=256)
    o=torch.optim.SGD(m.parameters(),lr=.1)
    @torch.compile
    def step(x,t):
        out=m(x); l=loss(out,t)
        print("l", type(l).__name__)
        return l*2
    def f(i):
        step(*x,t).backward(); o.step(); o.zero_grad()
    it(3,f)


def dynamic():
    m,x,t=make("mlp",depth=2,width=256); k=torch.compile(m,dynamic=True)
    o=torch.optim.AdamW(m.parameters())
    def f(i):
        b=[64,96,128,200,64][i]
        l=loss(k(torch.zeros(b,256,device="cuda")),torch.zeros(b,dtype=torch.int64,device="cuda")); l.backward(); o.step(); o.zero_grad()
    it(5,f)


def automatic_dynamic():
    m,x,t=make("gpt",depth=1); k=torch.compile(m)
    o=torch.optim.AdamW(m.parameters())
    def f(i):
        b=[64,96,128,200,64][i]
        l=loss(k(torch.zeros(2,b,dtype=torch.int64,device="cuda")),torch.zeros(2,b,dtype=torch.int64,device="cuda")); l.backward(); o.step(); o.zero_grad()
    it(5,f)


def compiled_optimizer():
    m,x,t=make("mlp",depth=2,width=256); k=torch.compile(m)
    o=torch.optim.AdamW(m.parameters())
    st=torch.compile(o.step)
    def f(i):
        l=loss(k(*x),t); l.backward(); st(); o.zero_grad()
    it(4,f)


def loss_and_optimizer():
    m,x,t=make("gpt",depth=1)
    o=torch.optim.AdamW(m.parameters(),foreach=True)
    @torch.compile
    def fwd(x,t): return loss(m(x),t)
    @torch.compile(fullgraph=False)
    def opt(): o.step()
    def f(i):
        l=fwd(*x,t); l.backward(); opt(); o.zero_grad()
    it(4,f)


def regional():
    m,x,t=make("gpt",depth=4)
    for b in m.blocks: b.compile()
    o=torch.optim.AdamW(m.parameters())
    def f(i):
        l=loss(m(*x),t); l.backward(); o.step(); o.zero_grad()
    it(3,f)


def compiled_autograd():
    m,x,t=make("mlp",depth=2,width=256)
    o=torch.optim.SGD(m.parameters(),lr=.1)
    torch._dynamo.config.compiled_autograd=True
    @torch.compile
    def step(x,t):
        l=loss(m(x),t); l.backward()
    def f(i):
        step(*x,t); o.step(); o.zero_grad()
    it(3,f)


def aot_eager():
    m,x,t=make("gpt",depth=2); k=torch.compile(m,backend="aot_eager")
    o=torch.optim.AdamW(m.parameters())
    def f(i):
        l=loss(k(*x),t); l.backward(); o.step(); o.zero_grad()
    it(3,f)


def reduce_overhead():
    m,x,t=make("mlp",depth=2,width=256); k=torch.compile(m,mode="reduce-overhead")
    def f(i):
        with torch.no_grad(): y=k(*x)
    it(5,f)


def reduce_overhead_training():
    m,x,t=make("gpt",depth=2); k=torch.compile(m,mode="reduce-overhead")
    o=torch.optim.AdamW(m.parameters())
    def f(i):
        l=loss(k(*x),t); l.backward(); o.step(); o.zero_grad()
    it(5,f)


def checkpointed():
    from torch.utils.checkpoint import checkpoint
    m,x,t=make("gpt",depth=3)
    class M(torch.nn.Module):
        def __init__(s,m): super().__init__(); s.m=m
        def forward(s,x):
            h=s.m.e(x)+s.m.p[:x.shape[1]]
            for b in s.m.blocks: h=checkpoint(b,h,use_reentrant=False)
            return s.m.head(s.m.norm(h))
    k=torch.compile(M(m)); o=torch.optim.AdamW(m.parameters())
    def f(i):
        l=loss(k(*x),t); l.backward(); o.step(); o.zero_grad()
    it(3,f)


def budget():
    import torch._functorch.config as fc
    fc.activation_memory_budget=0.4
    m,x,t=make("gpt",depth=3)
    k=torch.compile(m); o=torch.optim.AdamW(m.parameters())
    def f(i):
        l=loss(k(*x),t); l.backward(); o.step(); o.zero_grad()
    it(3,f)


def not_reordered():
    import torch._inductor.config as ic
    ic.reorder_for_peak_memory=False
    m,x,t=make("gpt",depth=2); k=torch.compile(m)
    o=torch.optim.AdamW(m.parameters())
    def f(i):
        loss(k(*x),t).backward(); o.step(); o.zero_grad()
    it(3,f)


def not_donated():
    import torch._functorch.config as fc
    fc.donated_buffer=False
    m,x,t=make("mlp",depth=2,width=256); k=torch.compile(m)
    o=torch.optim.SGD(m.parameters(),lr=.1)
    def f(i):
        loss(k(*x),t).backward(); o.step(); o.zero_grad()
    it(3,f)


def recompiled():
    m,x,t=make("mlp",depth=1,width=256)
    @torch.compile(dynamic=False)
    def g(x,n): return m(x)*n
    def f(i):
        with torch.no_grad(): g(torch.zeros(16*(i+1),256,device="cuda"),2)
    it(11,f)


def operators():
    x=torch.zeros(64,128,device="cuda")
    @torch.compile
    def g(x):
        a=x.sort(-1)[0]; b=x.topk(5)[0]; c=torch.cumsum(x,1); d=x.softmax(0); e=torch.einsum("ij,kj->ik",x,x); v=x.var(0); s=torch.stack([a,c,d]).mean(0)
        i=torch.randint(0,64,(32,),device=x.device); y=x[i]; z=torch.zeros_like(x).index_add(0,i,y); r=torch.rand_like(x); n=torch.nn.functional.interpolate(x[None,None],scale_factor=2)
        return a,b,c,d,e,v,s,y,z,r,n
    def f(i): y=g(x)
    it(3,f)


try:
    import triton
    import triton.language as tl
except ImportError:
    triton = None
if triton is not None:
    @triton.jit
    def add(a,b,c,n,B: tl.constexpr):
        o=tl.program_id(0)*B+tl.arange(0,B); k=o<n
        tl.store(c+o, tl.load(a+o,mask=k)+tl.load(b+o,mask=k), mask=k)


def own_kernel():
    def fn(a,b):
        c=torch.empty_like(a); add[(triton.cdiv(a.numel(),1024),)](a,b,c,a.numel(),1024); return c*2
    g=torch.compile(fn)
    a=torch.zeros(1000,1000,device="cuda")
    def f(i): y=fn(a,a); z=g(a,a)
    it(3,f)


def flex_attention():
    from torch.nn.attention.flex_attention import flex_attention, create_block_mask
    q=torch.zeros(2,4,256,64,device="cuda",requires_grad=True)
    g=torch.compile(flex_attention)
    def f(i):
        y=g(q,q,q); y.sum().backward(); q.grad=None
    it(3,f)


def attention_in_compiled_autograd():
    m,x,t=make("gpt",depth=1)
    o=torch.optim.AdamW(m.parameters())
    torch._dynamo.config.compiled_autograd=True
    @torch.compile
    def step(x,t):
        l=loss(m(x),t)/2; l.backward()
    def f(i):
        for _ in range(2): step(*x,t)
        o.step(); o.zero_grad()
    it(3,f)


def captured():
    m,x,t=make("mlp",depth=1,width=256)
    def f(i):
        s=torch.cuda.Stream(); s.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(s), torch.no_grad(): m(*x)
        torch.cuda.current_stream().wait_stream(s)
        g=torch.cuda.CUDAGraph()
        with torch.no_grad(), torch.cuda.graph(g): y=m(*x)
        c("captured"); g.replay(); del g,y
    it(3,f)


def captured_step():
    m,x,t=make("gpt",depth=1); k=torch.compile(m)
    o=torch.optim.AdamW(m.parameters(),capturable=True)
    s=torch.cuda.Stream(); s.wait_stream(torch.cuda.current_stream())
    def step():
        o.zero_grad(set_to_none=True); l=loss(k(*x),t); l.backward(); o.step(); return l
    with torch.cuda.stream(s):
        for _ in range(2): step(); c("warm")
    torch.cuda.current_stream().wait_stream(s)
    g=torch.cuda.CUDAGraph(); o.zero_grad(set_to_none=True)
    with torch.cuda.graph(g): l=step()
    c("captured")
    def f(i): g.replay()
    it(2,f)


def eager_flash_attention():
    m,x,t=make("gpt",depth=1); m=m.bfloat16(); k=torch.compile(m,backend="eager")
    def f(i):
        with torch.no_grad(): k(*x)
    it(2,f)


def targets_with_gaps():
    def f(i):
        for red in ("mean","none"):
            x=torch.zeros(64,10,device="cuda",requires_grad=True); t=torch.zeros(1,dtype=torch.int64,device="cuda").expand(64)
            F.nll_loss(x,t,reduction=red).sum().backward(); del x
            x=torch.zeros(10,64,device="cuda",requires_grad=True); F.cross_entropy(x.t(),t,reduction=red).sum().backward(); del x
            x=torch.zeros(4,10,8,8,device="cuda",requires_grad=True); t=torch.zeros(1,1,1,dtype=torch.int64,device="cuda").expand(4,8,8)
            F.nll_loss(x,t,reduction=red).sum().backward(); del x
            F.nll_loss(torch.zeros(4,8,8,10,device="cuda").permute(0,3,1,2),t,reduction=red)
    it(2,f)


globals()[sys.argv[1]]()
