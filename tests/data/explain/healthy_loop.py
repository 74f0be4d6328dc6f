"""An epoch of training and one of validation, as in a tutorial."""

import torch
from torch import nn


def train_epoch(model, data, criterion, optimizer):
    model.train()
    running = 0.0
    for inputs, labels in data:
        inputs, labels = inputs.cuda(), labels.cuda()
        optimizer.zero_grad()
        loss = criterion(model(inputs), labels)
        loss.backward()
        optimizer.step()
        running += loss.item()
    return running / len(data)


@torch.no_grad()
def validate(model, data, criterion):
    model.eval()
    return sum(criterion(model(inputs.cuda()), labels.cuda()).item() for inputs, labels in data)


model = nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Conv2d(16, 32, 3), nn.ReLU(), nn.Flatten(), nn.Linear(25088, 10)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
data = [(torch.randn(8, 3, 32, 32), torch.zeros(8, dtype=torch.long)) for _ in range(4)]
criterion = nn.CrossEntropyLoss()
for epoch in range(2):
    print(train_epoch(model, data, criterion, optimizer), validate(model, data, criterion))
