"""A class of a trainer with hooks, as frameworks have them; a callback prints memory, another stops early."""

import torch
from torch import nn


class Callback:
    def on_train_start(self, trainer): ...
    def on_batch_end(self, trainer, step, loss): ...
    def on_epoch_end(self, trainer): ...


class MemoryMonitor(Callback):
    def on_train_start(self, trainer):
        torch.cuda.reset_peak_memory_stats()

    def on_epoch_end(self, trainer):
        free, total = torch.cuda.mem_get_info()
        print("MEM", f"epoch{trainer.epoch}", torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved(), torch.cuda.memory_allocated())
        print("has room", free < total)


class EarlyStopping(Callback):
    def __init__(self, patience):
        self.best, self.patience, self.bad = float("inf"), patience, 0

    def on_epoch_end(self, trainer):
        if trainer.loss < self.best:
            self.best, self.bad = trainer.loss, 0
        else:
            self.bad += 1
        trainer.should_stop = self.bad >= self.patience


class Module(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 32))
        self.decoder = nn.Sequential(nn.Linear(32, 256), nn.ReLU(), nn.Linear(256, 784))
        self.activations = {}
        self.encoder.register_forward_hook(lambda module, args, out: self.activations.update(code=out.detach()))

    def training_step(self, batch, index):
        x = batch.view(batch.size(0), -1)
        return nn.functional.mse_loss(self.decoder(self.encoder(x)), x)

    def configure_optimizers(self):
        optimizer = torch.optim.NAdam(self.parameters(), lr=1e-3)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1)]


class Trainer:
    def __init__(self, epochs, callbacks):
        self.epochs, self.callbacks, self.should_stop = epochs, callbacks, False

    def call(self, name, *args):
        for callback in self.callbacks:
            getattr(callback, name)(self, *args)

    def fit(self, module, loader):
        module.to("cuda").train()
        [optimizer], [schedule] = module.configure_optimizers()
        self.call("on_train_start")
        for self.epoch in range(self.epochs):
            running = []
            for index, batch in enumerate(loader):
                loss = module.training_step(batch.to("cuda"), index)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                running.append(loss.item())
                self.call("on_batch_end", index, loss)
            schedule.step()
            self.loss = sum(running) / len(running)
            self.call("on_epoch_end")
            if self.should_stop:
                break


loader = torch.utils.data.DataLoader(torch.rand(1000, 1, 28, 28), batch_size=300)
Trainer(4, [MemoryMonitor(), EarlyStopping(2)]).fit(Module(), loader)
