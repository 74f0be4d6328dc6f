"""Attention by each of its kernels, as sdpa_kernel chooses them, and what is said where none can."""

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel


def mem(tag):
    print("MEM", tag, torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved(), torch.cuda.memory_allocated())


def attend(dtype):
    q, k, v = (torch.randn(2, 8, 512, 64, device="cuda", dtype=dtype, requires_grad=True) for _ in range(3))
    F.scaled_dot_product_attention(q, k, v, is_causal=True).sum().backward()


torch.backends.cuda.enable_cudnn_sdp(False)
FLASH, EFFICIENT, MATH = SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH
for dtype in (torch.float32, torch.bfloat16):
    for kernels in ([MATH], [EFFICIENT], [FLASH], [FLASH, MATH], [EFFICIENT, FLASH]):
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        tag = "-".join([str(dtype)[6:], *(one.name for one in kernels)])
        with sdpa_kernel(kernels):
            try:
                attend(dtype)
            except RuntimeError as error:
                tag += "-" + str(error).replace(" ", "-")
        mem(tag)
torch.backends.cuda.enable_flash_sdp(False)
attend(torch.bfloat16)
mem("without-flash")
