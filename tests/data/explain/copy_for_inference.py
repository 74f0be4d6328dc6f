"""Serving: the file's tensors stay beside the model that they were copied into."""

import tempfile

import torch
from torch import nn


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(2000, 256)
        self.layers = nn.ModuleList(nn.GRUCell(256, 256) for _ in range(2))
        self.next = nn.Linear(256, 2000, bias=False)

    def forward(self, token, states):
        x = self.words(token)
        states = [layer(x, state) for layer, state in zip(self.layers, states)]
        return self.next(states[-1]), states


class Server:
    def __init__(self, path):
        self.state = torch.load(path, map_location="cuda", weights_only=True)  # HERE
        self.model = Generator().cuda().eval()
        self.model.load_state_dict(self.state)

    @torch.inference_mode()
    def answer(self, length):
        token = torch.zeros(4, dtype=torch.long, device="cuda")
        states = [torch.zeros(4, 256, device="cuda") for _ in range(2)]
        for _ in range(length):
            scores, states = self.model(token, states)
            token = scores.argmax(-1)


with tempfile.NamedTemporaryFile(suffix=".pt") as file:
    torch.save(Generator().state_dict(), file.name)
    server = Server(file.name)
server.answer(6)
