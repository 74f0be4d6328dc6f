"""A spatial transformer, and every way to change the size of a picture."""
import torch
from torch import nn
import torch.nn.functional as F


def mem(tag):
    print("MEM", tag, torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved(), torch.cuda.memory_allocated())


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 10, 5), nn.Conv2d(10, 20, 5)
        self.drop = nn.Dropout2d()
        self.fc1, self.fc2 = nn.Linear(320, 50), nn.Linear(50, 10)
        self.localization = nn.Sequential(nn.Conv2d(1, 8, 7), nn.MaxPool2d(2, 2), nn.ReLU(True), nn.Conv2d(8, 10, 5), nn.MaxPool2d(2, 2), nn.ReLU(True))
        self.fc_loc = nn.Sequential(nn.Linear(90, 32), nn.ReLU(True), nn.Linear(32, 6))
        self.fc_loc[2].weight.data.zero_()
        self.fc_loc[2].bias.data.copy_(torch.tensor([1, 0, 0, 0, 1, 0], dtype=torch.float))

    def forward(self, x):
        theta = self.fc_loc(self.localization(x).view(-1, 90)).view(-1, 2, 3)
        grid = F.affine_grid(theta, x.size(), align_corners=False)
        x = F.grid_sample(x, grid, align_corners=False)
        x = F.relu(F.max_pool2d(self.conv1(x), 2))
        x = F.relu(F.max_pool2d(self.drop(self.conv2(x)), 2))
        x = F.relu(self.fc1(x.view(-1, 320)))
        return F.log_softmax(self.fc2(F.dropout(x, training=self.training)), dim=1)


model = Net().cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(3):
    x, y = torch.randn(64, 1, 28, 28).cuda(), torch.randint(0, 10, (64,)).cuda()
    optimizer.zero_grad()
    F.nll_loss(model(x), y).backward()
    optimizer.step()
    mem(f"step{step}")
picture = torch.randn(2, 3, 64, 64, device="cuda", requires_grad=True)
for mode in ("nearest", "bilinear", "bicubic", "area", "nearest-exact"):
    F.interpolate(picture, scale_factor=2, mode=mode).mean().backward()
    mem(mode)
F.interpolate(picture, size=(32, 32), mode="bilinear", antialias=True).mean().backward()
mem("antialias")
F.interpolate(picture.unsqueeze(2), size=(4, 32, 32), mode="trilinear").mean().backward()
grid = torch.rand(2, 20, 20, 2, device="cuda") * 2 - 1
F.grid_sample(picture, grid, mode="bicubic", padding_mode="reflection", align_corners=True).mean().backward()
mem("sampled")
for out in (F.pixel_shuffle(picture.repeat(1, 4, 1, 1), 2), F.unfold(picture, 3), F.pad(picture, (1, 2, 3, 4), "reflect"), F.pad(picture, (2,) * 4, "circular"),
            F.pad(picture, (2,) * 4, "replicate"), F.adaptive_max_pool2d(picture, 7), F.lp_pool2d(picture, 2, 3), F.fractional_max_pool2d(picture, 3, 20)):
    out.mean().backward()
    mem("others")
