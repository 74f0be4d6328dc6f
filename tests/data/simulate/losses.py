"""Every loss of torch, forward and backward."""
import torch
from torch import nn


def mem(tag):
    print("MEM", tag, torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved(), torch.cuda.memory_allocated())


x = torch.randn(64, 50, device="cuda", requires_grad=True)
z = torch.randn(64, 50, device="cuda", requires_grad=True)
y = torch.randn(64, 50, device="cuda")
c = torch.randint(0, 50, (64,), device="cuda")
sign = torch.randint(0, 2, (64,), device="cuda").float() * 2 - 1
for name, f in {
    "l1": lambda: nn.L1Loss()(x, y),
    "mse": lambda: nn.MSELoss(reduction="sum")(x, y),
    "huber": lambda: nn.HuberLoss()(x, y),
    "smooth": lambda: nn.SmoothL1Loss()(x, y),
    "ce": lambda: nn.CrossEntropyLoss(label_smoothing=0.1)(x, c),
    "ce_weight": lambda: nn.CrossEntropyLoss(weight=torch.ones(50, device="cuda"))(x, c),
    "ce_soft": lambda: nn.CrossEntropyLoss()(x, y.softmax(1)),
    "nll": lambda: nn.NLLLoss()(x.log_softmax(1), c),
    "poisson": lambda: nn.PoissonNLLLoss()(x, y.abs()),
    "gaussian": lambda: nn.GaussianNLLLoss()(x, y, z.square()),
    "kl": lambda: nn.KLDivLoss(reduction="batchmean")(x.log_softmax(1), y.softmax(1)),
    "bce": lambda: nn.BCELoss()(x.sigmoid(), y.sigmoid()),
    "bce_logits": lambda: nn.BCEWithLogitsLoss()(x, y.sigmoid()),
    "margin": lambda: nn.MarginRankingLoss()(x[:, 0], z[:, 0], sign),
    "hinge": lambda: nn.HingeEmbeddingLoss()(x, sign[:, None]),
    "multi_label": lambda: nn.MultiLabelMarginLoss()(x, torch.randint(0, 50, (64, 50), device="cuda")),
    "soft_margin": lambda: nn.SoftMarginLoss()(x, sign[:, None].expand(64, 50)),
    "multi_soft": lambda: nn.MultiLabelSoftMarginLoss()(x, y.sigmoid()),
    "cosine": lambda: nn.CosineEmbeddingLoss()(x, z, sign),
    "multi_margin": lambda: nn.MultiMarginLoss()(x, c),
    "triplet": lambda: nn.TripletMarginLoss()(x, z, y),
    "info_nce": lambda: nn.functional.cross_entropy(nn.functional.normalize(x) @ nn.functional.normalize(z).T / 0.07, torch.arange(64, device="cuda")),
    "similarity": lambda: nn.functional.cosine_similarity(x, z).mean() + nn.functional.pairwise_distance(x, z).mean(),
    "adaptive": lambda: adaptive(x, c).loss,
    "focal": lambda: ((1 - torch.exp(-nn.functional.cross_entropy(x, c, reduction="none"))) ** 2).mean(),
}.items():
    if name == "adaptive":
        adaptive = nn.AdaptiveLogSoftmaxWithLoss(50, 50, [10, 30]).cuda()
        continue
    torch.cuda.reset_peak_memory_stats()
    f().backward()
    mem(name)
acts = [nn.ReLU6(), nn.ELU(), nn.SELU(), nn.CELU(), nn.GELU("tanh"), nn.Mish(), nn.Softplus(), nn.Softsign(), nn.Hardtanh(), nn.Hardswish(), nn.Hardsigmoid(), nn.LogSigmoid(),
        nn.Tanhshrink(), nn.Softshrink(), nn.Hardshrink(), nn.RReLU(), nn.Threshold(0.1, 0), nn.GLU(), nn.Softmin(1), nn.LogSoftmax(1), nn.PReLU().cuda(), nn.Bilinear(50, 50, 20).cuda()]
for act in acts:
    torch.cuda.reset_peak_memory_stats()
    (act(x, z) if isinstance(act, nn.Bilinear) else act(x)).sum().backward()
    mem(type(act).__name__)
