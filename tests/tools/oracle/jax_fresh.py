"""Programs of JAX that were written after the rules of `xla-memory`, by `jax_truth`: what users write, in plain JAX."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from tests.tools.oracle.jax_programs import Program, shape, tree_like

i32, i8, bf16 = jnp.int32, jnp.int8, jnp.bfloat16
KEY = shape(2, dtype=jnp.uint32)


def norm(x, scale, shift):
    return jax.nn.standardize(x, axis=-1) * scale + shift


def dense(p, x):
    return x @ p["w"] + p["b"]


def dense_of(inputs, outputs):
    return {"w": shape(inputs, outputs), "b": shape(outputs)}


def conv(x, kernel, stride=1):
    return lax.conv_general_dilated(x, kernel, (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def adam(loss, rate=1e-3):
    """A step as optax's adam makes it, with a counter and corrected moments."""

    def step(p, state, *data):
        count, mean, square = state
        value, grads = jax.value_and_grad(loss)(p, *data)
        count = count + 1
        mean = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, mean, grads)
        square = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, square, grads)
        first, second = 1 - 0.9**count, 1 - 0.999**count
        p = jax.tree.map(lambda a, m, v: a - rate * (m / first) / (jnp.sqrt(v / second) + 1e-8), p, mean, square)
        return p, (count, mean, square), value

    return step


MIXER = {
    "patch": dense_of(48, 64),
    "blocks": [
        {
            "scale": shape(64),
            "shift": shape(64),
            "t1": dense_of(64, 32),
            "t2": dense_of(32, 64),
            "c1": dense_of(64, 128),
            "c2": dense_of(128, 64),
        }
    ]
    * 2,
    "head": dense_of(64, 10),
}


def mixer(p, x):
    b = x.shape[0]
    x = dense(p["patch"], x.reshape(b, 8, 4, 8, 4, 3).swapaxes(2, 3).reshape(b, 64, 48))
    for q in p["blocks"]:
        y = norm(x, q["scale"], q["shift"]).swapaxes(1, 2)
        x = x + dense(q["t2"], jax.nn.gelu(dense(q["t1"], y))).swapaxes(1, 2)
        x = x + dense(q["c2"], jax.nn.gelu(dense(q["c1"], norm(x, q["scale"], q["shift"]))))
    return dense(p["head"], x.mean(1))


def mixer_loss(p, x, y):
    return -jnp.take_along_axis(jax.nn.log_softmax(mixer(p, x)), y[:, None], 1).mean()


DENOISER = {
    "in": shape(3, 3, 3, 16),
    "time": dense_of(32, 32),
    "down": shape(3, 3, 16, 32),
    "mid": shape(3, 3, 32, 32),
    "up": shape(3, 3, 48, 16),
    "out": shape(3, 3, 16, 3),
}


def denoise(p, x, t):
    angles = t[:, None] * jnp.exp(-jnp.arange(16) * 0.5)
    code = jax.nn.silu(dense(p["time"], jnp.concatenate([jnp.sin(angles), jnp.cos(angles)], -1)))
    first = jax.nn.silu(conv(x, p["in"]))
    y = jax.nn.silu(conv(first, p["down"], 2)) + code[:, None, None]
    y = jax.nn.silu(conv(y, p["mid"]))
    y = jnp.repeat(jnp.repeat(y, 2, 1), 2, 2)
    return conv(jax.nn.silu(conv(jnp.concatenate([y, first], -1), p["up"])), p["out"])


def diffusion_loss(p, key, x):
    one, other = jax.random.split(key)
    t = jax.random.uniform(one, (x.shape[0],))
    noise = jax.random.normal(other, x.shape)
    signal = jnp.cos(t * 1.5)[:, None, None, None]
    return ((denoise(p, signal * x + jnp.sqrt(1 - signal**2) * noise, t) - noise) ** 2).mean()


GPT_LAYER = {
    "n1": shape(128),
    "n2": shape(128),
    "qkv": shape(128, 384),
    "o": shape(128, 128),
    "up": shape(128, 512),
    "down": shape(512, 128),
}
GPT = {"e": shape(512, 128), "layers": tree_like(GPT_LAYER, 4), "n": shape(128)}


def rms(x, scale):
    return x * lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5) * scale


def rotate(x, places):
    angles = places[..., None] * 10000.0 ** (-jnp.arange(0, x.shape[-1], 2) / x.shape[-1])
    sin, cos = jnp.sin(angles)[..., None, :], jnp.cos(angles)[..., None, :]
    left, right = jnp.split(x, 2, -1)
    return jnp.concatenate([left * cos - right * sin, left * sin + right * cos], -1)


def gpt_decode(p, cache, token, place):
    """One token by a scan over the layers and their cache."""

    def layer(x, held):
        q, (keys, values) = held
        b = x.shape[0]
        query, key, value = jnp.split((rms(x, q["n1"]) @ q["qkv"]).reshape(b, 12, 32), 3, 1)
        where = jnp.full((b,), place, i32)
        query, key = rotate(query, where), rotate(key, where)
        keys = lax.dynamic_update_slice(keys, key[:, None], (0, place, 0, 0))
        values = lax.dynamic_update_slice(values, value[:, None], (0, place, 0, 0))
        scores = jnp.einsum("bhd,bthd->bht", query, keys) / 32**0.5
        weights = jax.nn.softmax(jnp.where(jnp.arange(keys.shape[1]) <= place, scores, -jnp.inf))
        x = x + jnp.einsum("bht,bthd->bhd", weights, values).reshape(b, 128) @ q["o"]
        return x + jax.nn.gelu(rms(x, q["n2"]) @ q["up"]) @ q["down"], (keys, values)

    x, cache = lax.scan(layer, p["e"][token], (p["layers"], cache))
    return jnp.argmax(rms(x, p["n"]) @ p["e"].T, -1), cache


CACHE = (shape(4, 2, 64, 4, 32), shape(4, 2, 64, 4, 32))


def mamba(p, x):
    """A selective state space, its recurrence by an associative scan."""
    u, gate = jnp.split(x @ p["in"], 2, -1)
    u = jax.nn.silu(u)
    step = jax.nn.softplus(u @ p["step"])
    decay = jnp.exp(-step[..., None] * jnp.exp(p["a"]))
    added = (step * u)[..., None] * (u @ p["b"])[..., None, :]
    _, state = lax.associative_scan(lambda pair, other: (pair[0] * other[0], other[0] * pair[1] + other[1]), (decay, added), axis=1)
    return (((state * (u @ p["c"])[..., None, :]).sum(-1) + u * p["d"]) * jax.nn.silu(gate)) @ p["out"]


MAMBA = {
    "in": shape(32, 128),
    "step": shape(64, 64),
    "a": shape(64, 8),
    "b": shape(64, 8),
    "c": shape(64, 8),
    "d": shape(64),
    "out": shape(64, 32),
}


def experts(p, x):
    """The two best of eight experts with room for some tokens each."""
    weights, chosen = lax.top_k(jax.nn.softmax(x @ p["gate"]), 2)
    mask = jax.nn.one_hot(chosen, 8)
    place = jnp.cumsum(mask.reshape(-1, 8), 0).reshape(mask.shape) * mask - 1
    sent = jax.nn.one_hot(place.astype(i32), 40) * mask[..., None]
    taken = jnp.einsum("tkec,td->ecd", sent, x)
    made = jnp.einsum("ecf,efd->ecd", jax.nn.relu(jnp.einsum("ecd,edf->ecf", taken, p["up"])), p["down"])
    return jnp.einsum("tkec,tk,ecd->td", sent, weights, made)


EXPERTS = {"gate": shape(64, 8), "up": shape(8, 64, 128), "down": shape(8, 128, 64)}


def lstm(p, xs):
    def step(carry, x):
        cell, hidden = carry
        one, two, three, four = jnp.split(dense(p["x"], x) + hidden @ p["h"], 4, -1)
        cell = jax.nn.sigmoid(two + 1) * cell + jax.nn.sigmoid(one) * jnp.tanh(three)
        hidden = jax.nn.sigmoid(four) * jnp.tanh(cell)
        return (cell, hidden), hidden

    start = jnp.zeros((xs.shape[1], 96))
    return dense(p["out"], lax.scan(step, (start, start), xs)[1])


LSTM = {"x": dense_of(48, 384), "h": shape(96, 384), "out": dense_of(96, 20)}


def batch_norm(x, p):
    mean, var = x.mean((0, 1, 2)), x.var((0, 1, 2))
    return (x - mean) / jnp.sqrt(var + 1e-5) * p["scale"] + p["shift"], mean, var


def resnet_loss(p, x, y):
    x = jax.nn.relu(batch_norm(conv(x, p["stem"]["w"]), p["stem"])[0])
    for q in p["blocks"]:
        stride = 2 if "side" in q else 1
        z = jax.nn.relu(batch_norm(conv(x, q["a"]["w"], stride), q["a"])[0])
        z = batch_norm(conv(z, q["b"]["w"]), q["b"])[0]
        x = jax.nn.relu(z + (conv(x, q["side"], stride) if "side" in q else x))
    return -(jax.nn.log_softmax(dense(p["head"], x.mean((1, 2)))) * jax.nn.one_hot(y, 10)).sum(-1).mean()


def conv_of(inputs, outputs):
    return {"w": shape(3, 3, inputs, outputs), "scale": shape(outputs), "shift": shape(outputs)}


RESNET = {
    "stem": conv_of(3, 24),
    "blocks": [{"a": conv_of(24, 24), "b": conv_of(24, 24)}, {"a": conv_of(24, 48), "b": conv_of(48, 48), "side": shape(1, 1, 24, 48)}],
    "head": dense_of(48, 10),
}
RESNET_STATE = (shape(dtype=i32), RESNET, RESNET)
VIT = {
    "patch": dense_of(192, 96),
    "place": shape(17, 96),
    "cls": shape(96),
    "blocks": [
        {
            "scale": shape(96),
            "shift": shape(96),
            "qkv": dense_of(96, 288),
            "o": dense_of(96, 96),
            "up": dense_of(96, 192),
            "down": dense_of(192, 96),
        }
    ]
    * 2,
    "head": dense_of(96, 10),
}


def drop(key, x, rate=0.1):
    return jnp.where(jax.random.bernoulli(key, 1 - rate, x.shape), x / (1 - rate), 0)


def vit_loss(p, key, x, y):
    b = x.shape[0]
    x = dense(p["patch"], x.reshape(b, 4, 8, 4, 8, 3).swapaxes(2, 3).reshape(b, 16, 192))
    x = jnp.concatenate([jnp.broadcast_to(p["cls"], (b, 1, 96)), x], 1) + p["place"]
    for q in p["blocks"]:
        key, one, two = jax.random.split(key, 3)
        query, k, v = (a.reshape(b, 17, 4, 24) for a in jnp.split(dense(q["qkv"], norm(x, q["scale"], q["shift"])), 3, -1))
        x = x + drop(one, dense(q["o"], jax.nn.dot_product_attention(query, k, v).reshape(b, 17, 96)))
        x = x + drop(two, dense(q["down"], jax.nn.gelu(dense(q["up"], norm(x, q["scale"], q["shift"])))))
    return -jnp.take_along_axis(jax.nn.log_softmax(dense(p["head"], x[:, 0])), y[:, None], 1).mean()


def contrastive(p, images, texts):
    one, other = images @ p["i"], texts @ p["t"]
    one, other = (a / jnp.linalg.norm(a, axis=-1, keepdims=True) for a in (one, other))
    scores = one @ other.T * jnp.exp(p["scale"])
    return -(jnp.diag(jax.nn.log_softmax(scores)) + jnp.diag(jax.nn.log_softmax(scores, 0))).mean() / 2


def runge_kutta(p, x):
    """An equation of a network, until time is over."""

    def slope(x):
        return jnp.tanh(x @ p["a"]) @ p["b"] - x

    def step(state):
        t, x = state
        one = slope(x)
        two = slope(x + 0.05 * one)
        three = slope(x + 0.05 * two)
        four = slope(x + 0.1 * three)
        return t + 0.1, x + 0.1 / 6 * (one + 2 * two + 2 * three + four)

    return lax.while_loop(lambda state: state[0] < 1, step, (0.0, x))[1]


def spectral(p, x):
    """A layer of a Fourier network."""
    waves = jnp.fft.rfft2(x, axes=(1, 2))[:, :8, :8]
    mixed = jnp.einsum("bxyi,xyio->bxyo", waves, lax.complex(p["re"], p["im"]))
    return jax.nn.gelu(jnp.fft.irfft2(mixed, (32, 32), axes=(1, 2)) + x @ p["w"])


def search(scores, rows):
    values, places = lax.top_k(scores, 16)
    order = jnp.argsort(rows[places].sum(-1), -1)
    picked = jnp.take_along_axis(places, order, 1)
    return jnp.zeros_like(scores).at[jnp.arange(scores.shape[0])[:, None], picked].add(values), jnp.sort(values, -1)


def decoder(p, z):
    x = jax.nn.relu(dense(p["in"], z)).reshape(-1, 7, 7, 32)
    for kernel in p["up"]:
        x = jax.nn.leaky_relu(lax.conv_transpose(x, kernel, (2, 2), "SAME"))
    return jax.nn.sigmoid(x)


def process(x, y, z):
    """The logarithm of the likelihood of a Gaussian process, and its mean elsewhere."""

    def kernel(a, b):
        return jnp.exp(-0.5 * ((a[:, None] - b[None]) ** 2).sum(-1))

    lower = jnp.linalg.cholesky(kernel(x, x) + 1e-3 * jnp.eye(x.shape[0]))
    weights = jax.scipy.linalg.cho_solve((lower, True), y)
    return -0.5 * y @ weights - jnp.log(jnp.diag(lower)).sum(), kernel(z, x) @ weights


def least_squares(a, b):
    return jnp.linalg.solve(a.T @ a + jnp.eye(a.shape[1]), a.T @ b)


def quantized(x, w, scale, bias):
    step = jnp.abs(x).max(-1, keepdims=True) / 127
    whole = jnp.round(x / step).astype(i8)
    made = lax.dot_general(whole, w, (((1,), (0,)), ((), ())), preferred_element_type=i32)
    return jax.nn.relu(made.astype(jnp.float32) * step * scale + bias)


def narrow_loss(p, x):
    y = jax.nn.silu(x @ p["gate"]) * (x @ p["up"])
    return ((x + y @ p["down"]).astype(jnp.float32) ** 2).mean()


def energy(p, x):
    """Forces between particles."""

    def total(x):
        apart = x[:, None] - x[None]
        square = (apart**2).sum(-1) + jnp.eye(x.shape[0])
        return (p * (1 / square**6 - 1 / square**3)).sum() / 2

    return jax.value_and_grad(total)(x)


def field(p, points):
    """A network's value with its slope along one direction, for each point."""

    def value(x):
        return jnp.sin(jnp.sin(x @ p["a"]) @ p["b"]) @ p["c"]

    return jax.vmap(lambda x: jax.jvp(value, (x,), (jnp.ones_like(x),)))(points), jax.vmap(jax.grad(lambda x: value(x).sum()))(points)


def remat_loss(p, x):
    block = jax.checkpoint(lambda x, q: x + jax.nn.gelu(rms(x, q["n"]) @ q["up"]) @ q["down"])
    x, _ = lax.scan(lambda x, q: (block(x, q), None), x, p)
    return (x**2).mean()


def sums(x):
    return jnp.cumsum(x, 1), lax.cumlogsumexp(x, 0), lax.cummax(x, 1), jnp.cumprod(x, 0)


def beams(logits, scores, tokens):
    """One step of a beam search."""
    b, k, v = logits.shape
    total = scores[..., None] + jax.nn.log_softmax(logits)
    best, flat = lax.top_k(total.reshape(b, k * v), k)
    kept = jnp.take_along_axis(tokens, (flat // v)[..., None], 1)
    return best, jnp.concatenate([kept, (flat % v)[..., None]], -1)


def sample(key, logits):
    """One token of each row among the likeliest."""
    value = lax.top_k(logits, 40)[0][:, -1:]
    return jax.random.categorical(key, jnp.where(logits < value, -jnp.inf, logits / 0.7))


FRESH: dict[str, Program] = {
    "mixer_forward": Program(mixer, (MIXER, shape(8, 32, 32, 3))),
    "mixer_grad": Program(jax.grad(mixer_loss), (MIXER, shape(8, 32, 32, 3), shape(8, dtype=i32))),
    "diffusion_step": Program(
        adam(diffusion_loss), (DENOISER, (shape(dtype=i32), DENOISER, DENOISER), KEY, shape(4, 32, 32, 3)), donated=(0, 1)
    ),
    "gpt_cache_scan": Program(gpt_decode, (GPT, CACHE, shape(2, dtype=i32), shape(dtype=i32)), donated=(1,)),
    "mamba_associative": Program(mamba, (MAMBA, shape(4, 64, 32))),
    "mamba_associative_grad": Program(jax.grad(lambda p, x: (mamba(p, x) ** 2).mean()), (MAMBA, shape(4, 64, 32))),
    "experts": Program(experts, (EXPERTS, shape(128, 64))),
    "lstm_scan": Program(lstm, (LSTM, shape(32, 16, 48))),
    "lstm_scan_grad": Program(jax.grad(lambda p, x: (lstm(p, x) ** 2).mean()), (LSTM, shape(32, 16, 48))),
    "resnet_adam": Program(adam(resnet_loss), (RESNET, RESNET_STATE, shape(8, 24, 24, 3), shape(8, dtype=i32)), donated=(0, 1)),
    "vit_dropout_grad": Program(jax.value_and_grad(vit_loss), (VIT, KEY, shape(8, 32, 32, 3), shape(8, dtype=i32))),
    "contrastive_grad": Program(
        jax.value_and_grad(contrastive), ({"i": shape(256, 64), "t": shape(128, 64), "scale": shape()}, shape(96, 256), shape(96, 128))
    ),
    "runge_kutta": Program(runge_kutta, ({"a": shape(32, 128), "b": shape(128, 32)}, shape(64, 32))),
    "spectral": Program(spectral, ({"re": shape(8, 8, 16, 16), "im": shape(8, 8, 16, 16), "w": shape(16, 16)}, shape(4, 32, 32, 16))),
    "search": Program(search, (shape(32, 500), shape(500, 24))),
    "decoder": Program(decoder, ({"in": dense_of(32, 1568), "up": [shape(3, 3, 32, 24), shape(3, 3, 24, 1)]}, shape(8, 32))),
    "process": Program(process, (shape(48, 3), shape(48), shape(20, 3))),
    "least_squares": Program(least_squares, (shape(100, 24), shape(100, 5))),
    "quantized": Program(quantized, (shape(64, 256), shape(256, 128, dtype=i8), shape(128), shape(128))),
    "narrow_grad": Program(
        jax.grad(narrow_loss),
        (
            {"gate": shape(128, 256, dtype=bf16), "up": shape(128, 256, dtype=bf16), "down": shape(256, 128, dtype=bf16)},
            shape(64, 128, dtype=bf16),
        ),
    ),
    "energy": Program(energy, (shape(), shape(128, 3))),
    "field": Program(field, ({"a": shape(3, 64), "b": shape(64, 64), "c": shape(64, 1)}, shape(200, 3))),
    "remat_scan_grad": Program(
        jax.grad(remat_loss), ({"n": shape(5, 96), "up": shape(5, 96, 256), "down": shape(5, 256, 96)}, shape(4, 48, 96))
    ),
    "sums": Program(sums, (shape(64, 200),)),
    "beams": Program(beams, (shape(4, 5, 300), shape(4, 5), shape(4, 5, 12, dtype=i32))),
    "sample": Program(sample, (KEY, shape(16, 2000))),
}
