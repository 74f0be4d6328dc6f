"""A DataLoader with worker processes, pinned memory, persistent workers and a custom collate."""
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, WeightedRandomSampler


def mem(tag):
    print("MEM", tag, torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved(), torch.cuda.memory_allocated())


class Pictures(Dataset):
    def __len__(self):
        return 48

    def __getitem__(self, i):
        return {"image": torch.randn(3, 64, 64), "label": torch.tensor(i % 5), "name": f"{i}.png"}


def main():
    sampler = WeightedRandomSampler(torch.ones(48), 48)
    loader = DataLoader(Pictures(), batch_size=8, sampler=sampler, num_workers=2, pin_memory=True, persistent_workers=True, prefetch_factor=2, drop_last=True)
    model = nn.Sequential(nn.Conv2d(3, 16, 7, 2, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(512, 5))
    model = model.to("cuda", memory_format=torch.channels_last)
    opt = torch.optim.RMSprop(model.parameters(), lr=1e-3)
    for epoch in range(2):
        for i, batch in enumerate(loader):
            x = batch["image"].to("cuda", non_blocking=True, memory_format=torch.channels_last)
            y = batch["label"].to("cuda", non_blocking=True)
            loss = nn.functional.cross_entropy(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
        mem(f"epoch{epoch}")


if __name__ == "__main__":
    main()
