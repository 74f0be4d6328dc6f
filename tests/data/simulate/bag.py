"""Text classification with EmbeddingBag."""
import torch
from torch import nn
from torch.utils.data import DataLoader


def mem(tag):
    print("MEM", tag, torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved(), torch.cuda.memory_allocated())


class Classifier(nn.Module):
    def __init__(self, vocabulary, size, classes, mode, sparse):
        super().__init__()
        self.embedding = nn.EmbeddingBag(vocabulary, size, mode=mode, sparse=sparse)
        self.fc = nn.Linear(size, classes)
        self.embedding.weight.data.uniform_(-0.5, 0.5)

    def forward(self, text, offsets):
        return self.fc(self.embedding(text, offsets))


device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
torch.manual_seed(0)
lengths = torch.randint(5, 60, (64,)).tolist()
data = [(i % 4, torch.randint(0, 20000, (n,))) for i, n in enumerate(lengths)]


def collate(batch):
    labels, texts, offsets = [], [], [0]
    for label, text in batch:
        labels.append(label)
        texts.append(text)
        offsets.append(text.size(0))
    return torch.tensor(labels).to(device), torch.cat(texts).to(device), torch.tensor(offsets[:-1]).cumsum(dim=0).to(device)


loader = DataLoader(data, batch_size=16, shuffle=False, collate_fn=collate)
for mode, sparse in (("mean", False), ("sum", True), ("max", False), ("sum", False)):
    model = Classifier(20000, 64, 4, mode, sparse).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=5.0)
    criterion = nn.CrossEntropyLoss()
    for step, (label, text, offsets) in enumerate(loader):
        optimizer.zero_grad()
        loss = criterion(model(text, offsets), label)
        loss.backward()
        if not sparse:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
        mem(f"{mode}{sparse}{step}")
