"""Validation losses are put into a list, each with its graph."""

import torch
from torch import nn

torch.manual_seed(0)
device = "cuda"


def evaluate(model, data, criterion):
    model.eval()
    losses = []
    for inputs, labels in data:
        predicted = model(inputs.to(device))
        losses.append(criterion(predicted, labels.to(device)))  # HERE
    return losses


model = nn.Sequential(nn.Linear(128, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
criterion = nn.CrossEntropyLoss()
data = [(torch.randn(64, 128), torch.zeros(64, dtype=torch.long)) for _ in range(8)]
for inputs, labels in data:
    optimizer.zero_grad()
    loss = criterion(model(inputs.to(device)), labels.to(device))
    loss.backward()
    optimizer.step()
validation = evaluate(model, data, criterion)
