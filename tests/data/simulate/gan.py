"""A generative adversarial network: two networks, two optimizers, the generator's output detached for the discriminator."""

import torch
from torch import nn

device = torch.device("cuda:0")
latent, batch = 100, 64
generator = nn.Sequential(
    nn.ConvTranspose2d(latent, 256, 4, 1, 0), nn.ReLU(True),
    nn.ConvTranspose2d(256, 128, 4, 2, 1), nn.ReLU(True),
    nn.ConvTranspose2d(128, 3, 4, 2, 1), nn.Tanh(),
).to(device)
discriminator = nn.Sequential(
    nn.Conv2d(3, 128, 4, 2, 1), nn.LeakyReLU(0.2, True),
    nn.Conv2d(128, 256, 4, 2, 1), nn.LeakyReLU(0.2, True),
    nn.Conv2d(256, 1, 4, 1, 0), nn.Flatten(), nn.Sigmoid(),
).to(device)
criterion = nn.BCELoss()
fixed = torch.randn(16, latent, 1, 1, device=device)
opt_d = torch.optim.Adam(discriminator.parameters(), lr=2e-4, betas=(0.5, 0.999))
opt_g = torch.optim.Adam(generator.parameters(), lr=2e-4, betas=(0.5, 0.999))
images = []
for i in range(4):
    real = torch.rand(batch, 3, 16, 16).to(device)
    discriminator.zero_grad()
    label = torch.full((batch,), 1.0, device=device)
    loss_real = criterion(discriminator(real).view(-1), label)
    loss_real.backward()
    noise = torch.randn(batch, latent, 1, 1, device=device)
    fake = generator(noise)
    label.fill_(0.0)
    loss_fake = criterion(discriminator(fake.detach()).view(-1), label)
    loss_fake.backward()
    opt_d.step()
    generator.zero_grad()
    label.fill_(1.0)
    loss_g = criterion(discriminator(fake).view(-1), label)
    loss_g.backward()
    opt_g.step()
    if i % 2 == 0:
        with torch.no_grad():
            images.append(generator(fixed).detach().cpu())
    print(f"[{i}] D {loss_real.item() + loss_fake.item():.3f} G {loss_g.item():.3f}")
    print("MEM", f"step{i}", torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved(), torch.cuda.memory_allocated())
