"""Stochastic weight averaging and an exponential moving average."""
import torch
from torch import nn
from torch.optim.swa_utils import SWALR, AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import DataLoader, TensorDataset


def mem(tag):
    print("MEM", tag, torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved(), torch.cuda.memory_allocated())


model = nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(),
                      nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)).cuda()
data = TensorDataset(torch.randn(64, 3, 32, 32), torch.randint(0, 10, (64,)))
loader = DataLoader(data, batch_size=16, num_workers=0, pin_memory=True)
opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
swa_model = AveragedModel(model)
ema_model = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.999), use_buffers=True)
scheduler, swa_scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 4), SWALR(opt, 0.05)
mem("start")
for epoch in range(3):
    for x, y in loader:
        x, y = x.cuda(non_blocking=True), y.cuda(non_blocking=True)
        opt.zero_grad(set_to_none=False)
        nn.functional.cross_entropy(model(x), y).backward()
        opt.step()
        ema_model.update_parameters(model)
    if epoch:
        swa_model.update_parameters(model)
        swa_scheduler.step()
    else:
        scheduler.step()
    mem(f"epoch{epoch}")
swa_model.eval()
seen = correct = 0
with torch.no_grad():
    for x, y in loader:
        correct += (swa_model(x.cuda()).argmax(1) == y.cuda()).sum().item()
mem("eval")
