"""Programs of JAX and flax that stand in `tests/data/jax/more`, as `jax_truth` lowers them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from jax import lax


@dataclass(frozen=True)
class Program:
    """A function, the shapes of its arguments, and the places of those that are donated."""

    function: Any
    arguments: tuple[Any, ...]
    donated: tuple[int, ...] = ()


def shape(*sizes, dtype=jnp.float32):
    return jax.ShapeDtypeStruct(sizes, dtype)


def tree_like(tree, *sizes):
    """Return the same tree with more axes in front."""
    return jax.tree.map(lambda leaf: shape(*sizes, *leaf.shape, dtype=leaf.dtype), tree)


i32 = jnp.int32
KEY = shape(2, dtype=jnp.uint32)


def conv(x, kernel, stride=1, groups=1):
    return lax.conv_general_dilated(
        x, kernel, (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"), feature_group_count=groups
    )


def batch_norm(x, scale, shift):
    mean = x.mean((0, 1, 2))
    var = ((x - mean) ** 2).mean((0, 1, 2))
    return (x - mean) * lax.rsqrt(var + 1e-5) * scale + shift


def residual(p, x, stride):
    y = jax.nn.relu(batch_norm(conv(x, p["w1"], stride), p["g1"], p["b1"]))
    y = batch_norm(conv(y, p["w2"]), p["g2"], p["b2"])
    return jax.nn.relu(y + (conv(x, p["ws"], stride) if "ws" in p else x))


def residual_of(inputs, outputs, stride):
    p = {"w1": shape(3, 3, inputs, outputs), "g1": shape(outputs), "b1": shape(outputs)}
    p |= {"w2": shape(3, 3, outputs, outputs), "g2": shape(outputs), "b2": shape(outputs)}
    return p | ({"ws": shape(1, 1, inputs, outputs)} if inputs != outputs or stride > 1 else {})


STAGES = [(16, 16, 1), (16, 32, 2), (32, 64, 2)]
RESNET = {"stem": shape(3, 3, 3, 16), "b": [residual_of(*stage) for stage in STAGES], "fc": shape(64, 10)}


def resnet(p, x):
    x = jax.nn.relu(conv(x, p["stem"]))
    for q, (_, _, stride) in zip(p["b"], STAGES, strict=True):
        x = residual(q, x, stride)
    return x.mean((1, 2)) @ p["fc"]


def resnet_loss(p, x, y):
    return -(jax.nn.log_softmax(resnet(p, x)) * jax.nn.one_hot(y, 10)).sum(1).mean()


def layer_norm(x, scale, shift):
    mean = x.mean(-1, keepdims=True)
    var = ((x - mean) ** 2).mean(-1, keepdims=True)
    return (x - mean) * lax.rsqrt(var + 1e-6) * scale + shift


def attention(p, x, heads, causal):
    b, t, d = x.shape
    qkv = (x @ p["qkv"]).reshape(b, t, 3, heads, d // heads)
    q, k, v = (qkv[:, :, i] for i in range(3))
    a = jnp.einsum("bqhd,bkhd->bhqk", q, k) / (d // heads) ** 0.5
    if causal:
        a = jnp.where(jnp.tril(jnp.ones((t, t), bool)), a, -1e9)
    return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(a), v).reshape(b, t, d) @ p["o"]


def transformer(p, x, heads, causal=False):
    x = x + attention(p, layer_norm(x, p["g1"], p["b1"]), heads, causal)
    y = layer_norm(x, p["g2"], p["b2"])
    return x + jax.nn.gelu(y @ p["f1"] + p["c1"]) @ p["f2"] + p["c2"]


def transformer_of(d, f):
    norms = {name: shape(d) for name in ("g1", "b1", "g2", "b2")}
    products = {"qkv": shape(d, 3 * d), "o": shape(d, d), "f1": shape(d, f), "c1": shape(f), "f2": shape(f, d), "c2": shape(d)}
    return norms | products


VIT = {"patch": shape(192, 128), "pos": shape(64, 128), "l": [transformer_of(128, 256)] * 3, "head": shape(128, 10)}
GPT = {"e": shape(500, 128), "pos": shape(64, 128), "l": [transformer_of(128, 256)] * 2}


def vit(p, x):
    b = x.shape[0]
    x = x.reshape(b, 8, 8, 8, 8, 3).transpose(0, 1, 3, 2, 4, 5).reshape(b, 64, 192) @ p["patch"] + p["pos"]
    for q in p["l"]:
        x = transformer(q, x, 4)
    return x.mean(1) @ p["head"]


def gpt(p, tokens):
    x = p["e"][tokens] + p["pos"][: tokens.shape[1]]
    for q in p["l"]:
        x = transformer(q, x, 4, True)
    return x @ p["e"].T


def gpt_loss(p, tokens):
    return -jnp.take_along_axis(jax.nn.log_softmax(gpt(p, tokens)[:, :-1]), tokens[:, 1:, None], -1).mean()


def adam(p, mean, square, tokens):
    loss, grads = jax.value_and_grad(gpt_loss)(p, tokens)
    mean = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, mean, grads)
    square = jax.tree.map(lambda v, g: 0.99 * v + 0.01 * g * g, square, grads)
    return jax.tree.map(lambda a, m, v: a - 1e-3 * m / (jnp.sqrt(v) + 1e-8), p, mean, square), mean, square, loss


def mamba(p, x):
    def step(state, now):
        u, dt, b, c = now
        state = state * jnp.exp(-dt[:, :, None]) + dt[:, :, None] * u[:, :, None] * b[:, None]
        return state, (state * c[:, None]).sum(-1)

    u = jax.nn.silu(x @ p["i"])
    dt = jax.nn.softplus(u @ p["dt"])
    b, c = u @ p["b"], u @ p["c"]
    _, y = lax.scan(step, jnp.zeros((x.shape[0], u.shape[-1], 16)), tuple(a.transpose(1, 0, 2) for a in (u, dt, b, c)))
    return y.transpose(1, 0, 2) @ p["o"]


MAMBA = {"i": shape(64, 128), "dt": shape(128, 128), "b": shape(128, 16), "c": shape(128, 16), "o": shape(128, 64)}


def unet(p, x):
    held = []
    for kernel in p["down"]:
        x = jax.nn.silu(conv(x, kernel))
        held.append(x)
        x = lax.reduce_window(x, 0.0, lax.add, (1, 2, 2, 1), (1, 2, 2, 1), "VALID") / 4
    x = jax.nn.silu(conv(x, p["mid"]))
    for kernel, h in zip(p["up"], held[::-1], strict=True):
        x = jax.image.resize(x, (*h.shape[:3], x.shape[3]), "nearest")
        x = jax.nn.silu(conv(jnp.concatenate([x, h], -1), kernel))
    return conv(x, p["out"])


UNET = {
    "down": [shape(3, 3, 4, 16), shape(3, 3, 16, 32)],
    "mid": shape(3, 3, 32, 32),
    "up": [shape(3, 3, 64, 32), shape(3, 3, 48, 16)],
    "out": shape(3, 3, 16, 4),
}


def lstm(p, xs):
    def step(carry, x):
        gates = jnp.split(x @ p["w"] + carry[0] @ p["u"], 4, -1)
        cell = jax.nn.sigmoid(gates[1]) * carry[1] + jax.nn.sigmoid(gates[0]) * jnp.tanh(gates[2])
        return (
            cell * jax.nn.sigmoid(gates[3]),
            jax.nn.sigmoid(gates[1]) * carry[1] + jax.nn.sigmoid(gates[0]) * jnp.tanh(gates[2]),
        ), carry[0]

    start = jnp.zeros((8, 64))
    return lax.scan(step, (start, start), xs)[0][0]


def two_layers(p, x):
    return jax.checkpoint(lambda p, x: jnp.tanh(jnp.tanh(x @ p[0]) @ p[1]))(p, x).sum()


class Attending(nn.Module):
    @nn.compact
    def __call__(self, x):
        for _ in range(2):
            x = nn.LayerNorm()(nn.gelu(nn.Dense(256)(x)))
            x = nn.SelfAttention(4)(x)
        return nn.Dense(10)(x.mean(1))


class Pooling(nn.Module):
    @nn.compact
    def __call__(self, x):
        for features in (16, 32):
            x = nn.relu(nn.BatchNorm(use_running_average=True)(nn.Conv(features, (3, 3))(x)))
            x = nn.max_pool(x, (2, 2), (2, 2))
        return nn.Dense(10)(x.reshape(x.shape[0], -1))


def variables(module, *sizes):
    return jax.eval_shape(module.init, jax.random.key(0), jnp.zeros(sizes))


ATTENDING, ADAMW = variables(Attending(), 4, 32, 64), optax.adamw(1e-3)


def adamw(p, state, x):
    grads = jax.grad(lambda p: Attending().apply({"params": p}, x).sum())(p)
    updates, state = ADAMW.update(grads, state, p)
    return optax.apply_updates(p, updates), state


def special(x):
    return jax.scipy.special.gammaln(x) + jax.scipy.special.erfinv(x) + lax.digamma(x)


def transposed(x, kernel):
    return lax.conv_transpose(x, kernel, (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def causal(x, kernel):
    return lax.conv_general_dilated(x, kernel, (1,), [(2, 0)], dimension_numbers=("NWC", "WIO", "NWC"))


IMAGES, TOKENS, ROWS = shape(8, 32, 32, 3), shape(4, 64, dtype=i32), shape(64, 512)
MORE: dict[str, Program] = {
    "resnet_forward": Program(resnet, (RESNET, IMAGES)),
    "resnet_grad": Program(jax.value_and_grad(resnet_loss), (RESNET, IMAGES, shape(8, dtype=i32))),
    "vit_forward": Program(vit, (VIT, shape(4, 64, 64, 3))),
    "vit_grad": Program(jax.grad(lambda p, x: (vit(p, x) ** 2).mean()), (VIT, shape(4, 64, 64, 3))),
    "gpt_adam": Program(adam, (GPT, GPT, GPT, TOKENS)),
    "gpt_adam_donated": Program(adam, (GPT, GPT, GPT, TOKENS), donated=(0, 1, 2)),
    "gpt_bf16": Program(gpt, (jax.tree.map(lambda leaf: shape(*leaf.shape, dtype=jnp.bfloat16), GPT), TOKENS)),
    "mamba_forward": Program(mamba, (MAMBA, shape(4, 32, 64))),
    "mamba_grad": Program(jax.grad(lambda p, x: mamba(p, x).sum()), (MAMBA, shape(4, 32, 64))),
    "unet_forward": Program(unet, (UNET, shape(2, 32, 32, 4))),
    "unet_grad": Program(jax.grad(lambda p, x: (unet(p, x) ** 2).mean()), (UNET, shape(2, 32, 32, 4))),
    "sort": Program(lambda x: jnp.sort(x, 1), (ROWS,)),
    "argsort": Program(lambda x: jnp.argsort(x, 1), (ROWS,)),
    "argmax": Program(lambda x: jnp.argmax(x, -1), (ROWS,)),
    "fft": Program(lambda x: jnp.abs(jnp.fft.rfft(x)), (shape(32, 256),)),
    "cholesky": Program(lambda x: jnp.linalg.cholesky(x @ x.T), (shape(64, 64),)),
    "qr": Program(lambda x: jnp.linalg.qr(x), (shape(64, 32),)),
    "solve": Program(lambda a, b: jnp.linalg.solve(a, b), (shape(32, 32), shape(32, 4))),
    "svd": Program(lambda x: jnp.linalg.svd(x), (shape(32, 16),)),
    "random": Program(lambda key: jax.random.normal(key, (256, 256)), (KEY,)),
    "dropout": Program(lambda key, x: jnp.where(jax.random.bernoulli(key, 0.9, x.shape), x / 0.9, 0), (KEY, shape(128, 512))),
    "switch": Program(lambda i, x: lax.switch(i, [jnp.sin, jnp.cos, lambda v: v * 2], x), (shape(dtype=i32), shape(256, 256))),
    "fori": Program(lambda x: lax.fori_loop(0, 10, lambda i, v: jnp.tanh(v @ v), x), (shape(128, 128),)),
    "cumlogsumexp": Program(lambda x: lax.cumlogsumexp(x, 1), (shape(64, 256),)),
    "assoc_scan": Program(lambda x: lax.associative_scan(jnp.add, x, axis=1), (shape(32, 256),)),
    "scatter": Program(lambda x, i, u: x.at[i].set(u), (shape(1000, 64), shape(32, dtype=i32), shape(32, 64))),
    "gather_nd": Program(lambda x, i, j: x[i, j], (shape(64, 64, 16), shape(100, dtype=i32), shape(100, dtype=i32))),
    "segment_sum": Program(lambda x, i: jax.ops.segment_sum(x, i, 10), (shape(100, 32), shape(100, dtype=i32))),
    "depthwise": Program(lambda x, w: conv(x, w, 1, 32), (shape(4, 28, 28, 32), shape(3, 3, 1, 32))),
    "conv_transpose": Program(transposed, (shape(4, 16, 16, 32), shape(3, 3, 32, 16))),
    "conv1d": Program(causal, (shape(4, 128, 32), shape(3, 32, 64))),
    "jacobian": Program(jax.jacrev(lambda x: jnp.tanh(x) ** 2), (shape(64),)),
    "hessian": Program(jax.hessian(lambda x: (jnp.sin(x) ** 3).sum()), (shape(32),)),
    "remat_mlp": Program(jax.grad(two_layers), ([shape(128, 512), shape(512, 128)], shape(64, 128))),
    "int_ops": Program(lambda x: ((x * 3) >> 1) ^ (x & 7) | lax.population_count(x), (shape(1024, dtype=i32),)),
    "special": Program(special, (shape(1024),)),
    "complex": Program(lambda x: jnp.fft.ifft(jnp.fft.fft(x) * 2), (shape(64, 64, dtype=jnp.complex64),)),
    "pad_interior": Program(lambda x: lax.pad(x, 0.0, [(1, 2, 1), (-1, 0, 0)]), (shape(32, 32),)),
    "lstm": Program(lstm, ({"w": shape(32, 256), "u": shape(64, 256)}, shape(20, 8, 32))),
    "flax_forward": Program(Attending().apply, (ATTENDING, shape(4, 32, 64))),
    "flax_grad": Program(jax.grad(lambda v, x: Attending().apply(v, x).sum()), (ATTENDING, shape(4, 32, 64))),
    "flax_cnn": Program(Pooling().apply, (variables(Pooling(), 4, 28, 28, 1), shape(4, 28, 28, 1))),
    "flax_adamw": Program(adamw, (ATTENDING["params"], jax.eval_shape(ADAMW.init, ATTENDING["params"]), shape(4, 32, 64)), donated=(0, 1)),
}
