import torch
from torch import nn
import torch.nn.functional as F
from stat_ import say
torch.backends.cuda.enable_cudnn_sdp(False)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(5000, 256)
        self.qkv = nn.ModuleList(nn.Linear(256, 768) for _ in range(3))
        self.out = nn.ModuleList(nn.Linear(256, 256) for _ in range(3))
        self.norm = nn.ModuleList(nn.LayerNorm(256) for _ in range(3))
        self.head = nn.Linear(256, 5000)
    def forward(self, ids):
        x = self.embed(ids)
        for q, o, n in zip(self.qkv, self.out, self.norm):
            b, s, d = x.shape
            k, v, w = q(n(x)).view(b, s, 3, 4, 64).permute(2, 0, 3, 1, 4)
            x = x + o(F.dropout(F.scaled_dot_product_attention(k, v, w, is_causal=True).transpose(1, 2).reshape(b, s, d), 0.1))
        return self.head(x)
net = Net().cuda().bfloat16()
opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, foreach=True)
for step in range(3):
    ids = torch.randint(0, 5000, (4, 300), device="cuda")
    logits = net(ids)
    loss = F.cross_entropy(logits.float().view(-1, 5000), ids.view(-1))
    loss.backward()
    torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    opt.step(); opt.zero_grad(set_to_none=True)
    say(step)
