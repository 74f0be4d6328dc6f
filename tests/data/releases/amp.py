import torch
from torch import nn
from stat_ import say
torch.backends.cuda.enable_cudnn_sdp(False)
layer = nn.TransformerEncoderLayer(256, 4, 1024, batch_first=True)
net = nn.TransformerEncoder(layer, 4).to("cuda")
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cuda")
for step in range(3):
    with torch.autocast("cuda", torch.float16):
        loss = net(torch.randn(8, 128, 256, device="cuda")).float().square().mean()
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    say(step)
