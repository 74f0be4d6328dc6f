"""MultiheadAttention with all its masks, in training and in inference; encoder layers with their fast path."""
import torch
from torch import nn


def mem(tag):
    print("MEM", tag, torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved(), torch.cuda.memory_allocated())


x = torch.randn(4, 50, 128, device="cuda")
pad = torch.zeros(4, 50, dtype=torch.bool, device="cuda")
pad[:, 40:] = True
causal = torch.triu(torch.ones(50, 50, dtype=torch.bool, device="cuda"), 1)
mha = nn.MultiheadAttention(128, 8, dropout=0.1, batch_first=True).cuda()
for name, options in {
    "weights": {},
    "plain": {"need_weights": False},
    "padded": {"need_weights": False, "key_padding_mask": pad},
    "causal": {"need_weights": False, "attn_mask": causal, "is_causal": True},
    "both": {"key_padding_mask": pad, "attn_mask": causal},
}.items():
    out, _ = mha(x, x, x, **options)
    out.mean().backward()
    mem(f"train_{name}")
    mha.zero_grad()
    del out, _
mha.eval()
with torch.no_grad():
    for name, options in {"weights": {}, "plain": {"need_weights": False}, "padded": {"key_padding_mask": pad}}.items():
        out, _ = mha(x, x, x, **options)
        mem(f"eval_{name}")
cross = nn.MultiheadAttention(128, 4, kdim=64, vdim=96, add_bias_kv=True, add_zero_attn=True).cuda()
q, k, v = torch.randn(20, 3, 128, device="cuda"), torch.randn(30, 3, 64, device="cuda"), torch.randn(30, 3, 96, device="cuda")
out, weights = cross(q, k, v, average_attn_weights=False)
out.sum().backward()
mem("cross")
encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(128, 8, 256, batch_first=True, norm_first=False), 3).cuda()
encoder(x, src_key_padding_mask=pad).mean().backward()
mem("encoder_train")
encoder.eval()
with torch.inference_mode():
    encoder(x)
    mem("encoder_eval")
    encoder(x, src_key_padding_mask=pad)
    mem("encoder_eval_padded")
