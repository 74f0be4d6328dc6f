"""A prefetcher that copies the next batch on a stream of its own, as detection repositories do."""

import torch
from torch import nn


class Prefetcher:
    def __init__(self, loader):
        self.loader = iter(loader)
        self.stream = torch.cuda.Stream()
        self.preload()

    def preload(self):
        try:
            self.images, self.target = next(self.loader)
        except StopIteration:
            self.images = None
            return
        with torch.cuda.stream(self.stream):
            self.images = self.images.cuda(non_blocking=True).float().sub_(0.5)
            self.target = self.target.cuda(non_blocking=True)

    def next(self):
        torch.cuda.current_stream().wait_stream(self.stream)
        images, target = self.images, self.target
        if images is not None:
            images.record_stream(torch.cuda.current_stream())
            target.record_stream(torch.cuda.current_stream())
            self.preload()
        return images, target


data = torch.utils.data.TensorDataset(torch.rand(256, 3, 32, 32), torch.randint(0, 10, (256,)))
loader = torch.utils.data.DataLoader(data, batch_size=64)
model = nn.Sequential(nn.Conv2d(3, 64, 3), nn.ReLU(), nn.Conv2d(64, 64, 3, 2), nn.ReLU(), nn.Flatten(), nn.Linear(64 * 14 * 14, 10)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, nesterov=True)
fetch = Prefetcher(loader)
images, target = fetch.next()
step = 0
while images is not None:
    loss = nn.functional.cross_entropy(model(images), target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    torch.cuda.synchronize()
    print("MEM", f"step{step}", torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved(), torch.cuda.memory_allocated())
    images, target = fetch.next()
    step += 1
