"""The loop of the beginner's tutorial: a perceptron on images, SGD with momentum, a test pass after each epoch."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

device = "cuda" if torch.cuda.is_available() else "cpu"
images, labels = torch.rand(512, 1, 28, 28), torch.randint(0, 10, (512,))
train = DataLoader(TensorDataset(images, labels), batch_size=128, shuffle=True)
test = DataLoader(TensorDataset(images[:200], labels[:200]), batch_size=64)


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.flatten = nn.Flatten()
        self.stack = nn.Sequential(nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10))

    def forward(self, x):
        return self.stack(self.flatten(x))


model = Network().to(device)
loss_fn = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
for epoch in range(2):
    model.train()
    for batch, (x, y) in enumerate(train):
        x, y = x.to(device), y.to(device)
        loss = loss_fn(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if batch % 2 == 0:
            print(f"loss {loss.item():.3f}")
    model.eval()
    correct = 0
    with torch.no_grad():
        for x, y in test:
            x, y = x.to(device), y.to(device)
            correct += (model(x).argmax(1) == y).type(torch.float).sum().item()
    print(f"accuracy {correct / 200:.2f}")
    print("MEM", f"epoch{epoch}", torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved(), torch.cuda.memory_allocated())
    torch.cuda.reset_peak_memory_stats()
