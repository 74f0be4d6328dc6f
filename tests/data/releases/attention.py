import torch, torch.nn.functional as F
torch.backends.cuda.enable_cudnn_sdp(False)
for dtype in (torch.float32, torch.bfloat16):
    q, k, v = (torch.zeros(2, 4, 64, 64, device="cuda", dtype=dtype, requires_grad=True) for _ in range(3))
    b = torch.cuda.memory_stats()
    out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    s = torch.cuda.memory_stats()
    print(dtype, s["requested_bytes.all.current"] - b["requested_bytes.all.current"], s["allocated_bytes.all.current"] - b["allocated_bytes.all.current"], s["allocation.all.allocated"] - b["allocation.all.allocated"], flush=True)
