"""Sound files to start from: small ones, for a mutant costs what its seed costs."""

from __future__ import annotations

import gzip
import importlib.util
import io
import json
import pickle
import random
import struct
import tarfile
import warnings
import zipfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from irscope.diagnostics import DiagnosticSink
from irscope.errors import LoadError
from irscope.frontends.base import LoadOptions
from irscope.frontends.load import load_program
from irscope.ir.dtypes import DType
from irscope.ir.printer import print_program
from irscope.passes import PASSES
from tests.tools.fuzz.mutants import AS_IT_IS, Seed

ROOT = Path(__file__).parents[3]
_INDUCTOR = ROOT / "tests" / "data" / "inductor"
_JAX = ROOT / "tests" / "data" / "jax"
_LARGEST_TEXT = 8_000
_LARGEST_NODE_MODEL = 12_000
_NODE_MODELS = 400
"""Of the thousand and more models that test one ONNX operator each."""


def quick_seeds(format: str) -> list[Seed]:
    """A few seeds that take no time to make."""
    if format in _SAMPLES:
        codec, names = _SAMPLES[format]
        paths = [path for path in (ROOT / "samples" / "models" / name for name in names) if path.exists()]
        return [Seed(path.stem, codec, {path.name: path.read_bytes()}) for path in paths]
    if format == "onnx":
        return [*(Seed(name, "onnx", {"model.onnx": data}) for name, data in _whole_models()), _external()]
    return list(FORMATS[format]())


def seeds_of(format: str, folder: Path) -> list[Seed]:
    """The seeds of a format; they are made once and kept, each in a folder named name.codec."""
    place = folder / format
    if not (place / "complete").exists():
        place.mkdir(parents=True, exist_ok=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for seed in FORMATS[format]():
                _write(place, seed)
        (place / "complete").touch()
    return [_read(path) for path in sorted(place.iterdir()) if path.is_dir()]


def _write(place: Path, seed: Seed) -> None:
    folder = place / f"{seed.name}.{seed.codec}"
    folder.mkdir(exist_ok=True)
    for name, data in seed.files.items():
        (folder / name).write_bytes(data)
    (folder / "seed.json").write_text(json.dumps({"files": list(seed.files), "companion": seed.companion}))


def _read(folder: Path) -> Seed:
    name, _, codec = folder.name.rpartition(".")
    told = json.loads((folder / "seed.json").read_text())
    return Seed(name, codec, {file: (folder / file).read_bytes() for file in told["files"]}, told["companion"])


# -- ONNX ------------------------------------------------------------------------------------------------------------


def _onnx() -> Iterator[Seed]:
    from tests.tools.conformance.suite import load_suite

    fitting = [case for case in load_suite() if len(case.model) < _LARGEST_NODE_MODEL]
    random.Random(1).shuffle(fitting)
    for case in fitting[:_NODE_MODELS]:
        yield Seed(case.name, "onnx", {"model.onnx": case.model})
    for name, data in _whole_models():
        yield Seed(name, "onnx", {"model.onnx": data})
    yield _external()


def _whole_models() -> Iterator[tuple[str, bytes]]:
    """The samples with fewer weights: their initializers are declared, but not there."""
    import onnx

    for path in sorted((ROOT / "samples" / "models").glob("*.onnx")):
        model = onnx.load(path)
        for tensor in model.graph.initializer:
            if len(tensor.raw_data) > 4096:
                tensor.ClearField("raw_data")
                tensor.data_location = onnx.TensorProto.EXTERNAL
                tensor.external_data.add(key="location", value="absent.bin")
        yield path.stem, model.SerializeToString()


def _external() -> Seed:
    from onnx import TensorProto, helper

    weight = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=(4, 8), data_location=TensorProto.EXTERNAL)
    for key, value in (("location", "w.bin"), ("offset", "64"), ("length", "128")):
        weight.external_data.add(key=key, value=value)
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 4])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 8])]
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Relu", ["h"], ["y"])]
    model = helper.make_model(helper.make_graph(nodes, "g", inputs, outputs, [weight]), opset_imports=[helper.make_opsetid("", 17)])
    return Seed("external", "onnx", {"model.onnx": model.SerializeToString(), "w.bin": bytes(range(256))})


# -- torch ------------------------------------------------------------------------------------------------------------


def _exported() -> Iterator[Seed]:
    import torch

    from tests.frontends.torch.test_higher_order import older
    from tests.tools.torch_files.helpers import save_exported
    from tests.tools.torch_files.models import SAMPLES, Cond

    with TemporaryDirectory() as scratch:
        path = Path(scratch) / "model.pt2"
        for name, sample in SAMPLES.items():
            for decompose in (False, True):
                save_exported(path, sample.model(), sample.inputs(), sample.dynamic, decompose)
                yield Seed(f"{name}{'-decomposed' * decompose}", "zip", {"model.pt2": path.read_bytes()})
        save_exported(path, Cond().eval(), (torch.randn(2, 4),))
        yield Seed("cond", "zip", {"model.pt2": path.read_bytes()})
        older(path, torch.export.export(SAMPLES["mlp"].model(), SAMPLES["mlp"].inputs()))
        yield Seed("older", "zip", {"model.pt2": path.read_bytes()})


def _torchscript() -> Iterator[Seed]:
    from tests.tools.torch_files.helpers import save_scripted, save_traced
    from tests.tools.torch_files.models import SAMPLES
    from tests.tools.torch_files.scripted import MODELS

    with TemporaryDirectory() as scratch:
        path = Path(scratch) / "model.pt"
        for name, sample in SAMPLES.items():
            save_traced(path, sample.model(), sample.inputs())
            yield Seed(f"traced-{name}", "zip", {"model.pt": path.read_bytes()})
        for name, scripted in MODELS.items():
            save_scripted(path, scripted.make().eval())
            with suppress(LoadError):
                load_program(path, LoadOptions(), DiagnosticSink())  # some do not say what they are called with
                yield Seed(name.replace(" ", "-"), "zip", {"model.pt": path.read_bytes()})


def _safetensors() -> bytes:
    header = {
        "__metadata__": {"format": "pt"},
        "a.weight": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
        "a.bias": {"dtype": "BF16", "shape": [4], "data_offsets": [24, 32]},
        "b": {"dtype": "I64", "shape": [], "data_offsets": [32, 40]},
    }
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + bytes(range(40))


def _checkpoints() -> Iterator[Seed]:
    shard = _safetensors()
    yield Seed("plain", "safetensors", {"model.safetensors": shard})
    index = {"metadata": {"total_size": 40}, "weight_map": {name: "m-1.safetensors" for name in ("a.weight", "a.bias", "b")}}
    yield Seed("index", "json", {"model.safetensors.index.json": json.dumps(index).encode(), "m-1.safetensors": shard})
    if importlib.util.find_spec("torch") is None:
        return
    import torch

    from tests.tools.torch_files.models import SAMPLES

    with TemporaryDirectory() as scratch:
        path = Path(scratch) / "model.pt"
        for name in ("mlp", "cnn"):
            model = SAMPLES[name].model()
            optimizer = torch.optim.Adam(model.parameters())
            model(*SAMPLES[name].inputs()).sum().backward()
            optimizer.step()
            for kind, content in (
                ("state", model.state_dict()),
                ("nested", {"model": model.state_dict(), "epoch": 3, "args": ["x", 1.5, None]}),
                ("module", model),
                ("optimizer", {"state": optimizer.state_dict()}),
            ):
                for codec in ("zip", "legacy"):
                    torch.save(content, path, _use_new_zipfile_serialization=codec == "zip")
                    yield Seed(f"{name}-{kind}", codec, {"model.pt": path.read_bytes()})


# -- texts and JSON ---------------------------------------------------------------------------------------------------


def _programs() -> Iterator[tuple[str, str]]:
    """Programs in the text form: the samples', and what a few small models of other formats print as."""
    for path in sorted([*(ROOT / "samples").glob("*.irs"), *(ROOT / "tui" / "samples").glob("*.irs")]):
        yield path.stem, path.read_text()
    for path in sorted((ROOT / "samples" / "models").iterdir()):
        yield path.name, print_program(load_program(path, LoadOptions(), DiagnosticSink()))


def _irs() -> Iterator[Seed]:
    for name, text in _programs():
        yield Seed(name, "text", {"model.irs": text.encode()})


def _reproducers() -> Iterator[Seed]:
    chance = random.Random(2)
    programs = list(_programs())
    pipelines = [name for name in PASSES if name not in ("fixpoint", "schedule", "plan", "checkpoint", "reorder")]
    pipelines += ["fixpoint{max=4}(fold,dce)", "liveness{top=5 model=ssa},verify", "schedule{seconds=0.1}", "plan{seconds=0.1}"]
    for number, pipeline in enumerate(pipelines):
        name, text = programs[number % len(programs)] if chance.random() < 0.5 else chance.choice(programs)
        head = f"# irscope 0.1, Python 3.12.0, Linux\n# RUN: {pipeline}\n# Traceback (most recent call last):\n"
        yield Seed(f"{number}-{name}", "text", {"irscope-crash.irs": (head + text).encode()})


def _gguf() -> Iterator[Seed]:
    from tests.frontends.gguf_files import LLAMA, Gguf, small

    yield Seed("small", "gguf", {"model.gguf": small().contents()})
    windows = {"llama.attention.sliding_window": 100, "llama.attention.sliding_window_pattern": [True, False], "a.list": ["x", "y"]}
    yield Seed("windows", "gguf", {"model.gguf": small({**LLAMA, **windows}).contents()})
    experts = {f"blk.{layer}.ffn_up_exps.weight": (DType.IQ4_XS, (4, 32, 256)) for layer in range(2)}
    yield Seed(
        "experts", "gguf", {"model.gguf": Gguf({**LLAMA, "llama.expert_count": 4, "llama.expert_used_count": 2}, experts).contents()}
    )


def _recordings() -> Iterator[Seed]:
    models = {"cnn_onnx": "cnn.onnx", "net_pt2": "net.pt2"}
    for path in sorted((ROOT / "samples" / "recordings").glob("*.jsonl")):
        model = models.get(path.name.partition(".")[0], "net.pt2")
        yield Seed(path.stem, "jsonl", {"run.jsonl": path.read_bytes()}, str(ROOT / "samples" / "models" / model))


def _devices() -> Iterator[Seed]:
    for path in sorted((ROOT / "irscope" / "devices" / "data").glob("*.json")):
        yield Seed(path.stem, "json", {"device.json": path.read_bytes()}, str(ROOT / "samples" / "mlp.irs"))


def _inductor() -> Iterator[Seed]:
    for path in sorted(_INDUCTOR.glob("*/output_code.py")):
        yield Seed(path.parent.name, "text", {one.name: one.read_bytes() for one in (path, path.with_name("fx_graph_readable.py"))})


def _aoti() -> Iterator[Seed]:
    for folder in sorted({path.parent for path in _INDUCTOR.glob("*/*.wrapper.cpp")}):
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w") as archive:
            archive.writestr("model/archive_format", "pt2")
            for path in sorted(folder.glob("*.cpp")):
                archive.writestr(f"model/data/aotinductor/model/{path.name}", path.read_bytes())
        yield Seed(folder.name, "zip", {"model.pt2": packed.getvalue()})


def _stablehlo() -> Iterator[Seed]:
    for path in sorted(_JAX.rglob("*.mlir.gz")):
        text = gzip.decompress(path.read_bytes())
        if len(text) < _LARGEST_TEXT:
            yield Seed(path.name.partition(".")[0], "text", {"model.mlir": text})


def _bytecode() -> Iterator[Seed]:
    for path in sorted(_JAX.rglob("*.jaxexport")):
        yield Seed(path.stem, "bytecode", {"model.jaxexport": path.read_bytes()})


# -- archives, folders of a hub, snapshots, and commands -----------------------------------------------------------------


def _hub_files() -> dict[str, bytes]:
    from tests.frontends.hub import LLAMA, llama_tensors, write_safetensors

    with TemporaryDirectory() as scratch:
        weights = write_safetensors(Path(scratch) / "w", llama_tensors()).read_bytes()
    table = {"AutoConfig": "mine.Config", "AutoModel": "mine.Model"}
    tokens = {"type": "BPE", "vocab": {}, "merges": []}
    adapter = {"peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "v_proj"], "base_model_name_or_path": "../x"}
    texts: dict[str, object] = {
        "config.json": {**LLAMA, "rope_theta": 1e4, "max_position_embeddings": 64},
        "model.safetensors.index.json": {"metadata": {"total_size": 40}, "weight_map": dict.fromkeys(llama_tensors(), "model.safetensors")},
        "tokenizer.json": {"version": "1.0", "added_tokens": [{"id": 0, "content": "<s>"}], "model": tokens},
        "tokenizer_config.json": {"tokenizer_class": "LlamaTokenizer", "chat_template": "{{ 1 }}", "auto_map": table},
        "adapter_config.json": adapter,
    }
    return {**{name: json.dumps(text).encode() for name, text in texts.items()}, "model.safetensors": weights}


def _hub() -> Iterator[Seed]:
    """Folders in which one file after the other is the one that is changed."""
    files = _hub_files()
    plain = {name: files[name] for name in ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")}
    for main, codec in (("config.json", "config"), ("model.safetensors", "safetensors"), ("tokenizer_config.json", "config")):
        yield Seed(f"whole-{main}", codec, {main: plain[main], **plain})
    index = "model.safetensors.index.json"
    yield Seed("split", "json", {index: files[index], **plain})
    code = b"open('executed', 'w').close()\n"
    own = json.dumps({**json.loads(plain["config.json"]), "auto_map": {"AutoConfig": "mine.Config", "AutoModel": "mine.Model"}}).encode()
    yield Seed("code", "config", {**plain, "config.json": own, "mine.py": code})
    adapter = {"adapter_config.json": files["adapter_config.json"], "adapter_model.safetensors": _safetensors()}
    yield Seed("adapter", "config", adapter)


def _archives() -> Iterator[Seed]:
    models = {f"{path.stem}/{path.name}": path.read_bytes() for path in sorted((ROOT / "samples").glob("*.irs"))[:2]}
    models |= {"w/model.safetensors": _safetensors(), "w/config.json": _hub_files()["config.json"]}
    small = ROOT / "samples" / "models" / "net.pt"
    if small.exists():
        models["net/net.pt"] = small.read_bytes()
    for packing in ("", "gz", "bz2", "xz"):
        made = io.BytesIO()
        with tarfile.open(fileobj=made, mode=f"w:{packing}") as archive:
            for name, data in models.items():
                info = tarfile.TarInfo(name)
                info.size = len(data)
                archive.addfile(info, io.BytesIO(data))
        name = f"models.tar{packing and '.'}{packing}"
        yield Seed(f"tar{packing}", "tar", {name: made.getvalue()})
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, data in models.items():
            packed.writestr(name, data)
    yield Seed("zip", "models", {"models.zip": made.getvalue()})


def _snapshots() -> Iterator[Seed]:
    whole = pickle.loads((ROOT / "samples" / "recordings" / "oom.pickle").read_bytes())
    for name, first, last, segments in (("start", 0, 120, 6), ("end", -150, None, 9)):
        part = {**whole, "segments": whole["segments"][:segments], "device_traces": [whole["device_traces"][0][first:last]]}
        for codec in ("snapshot", "pickle"):
            yield Seed(f"{name}-{codec}", codec, {"memory.pickle": pickle.dumps(part, 4)})


def _options() -> Iterator[Seed]:
    for path in sorted((ROOT / "samples").glob("*.irs")):
        yield Seed(path.stem, AS_IT_IS, {"model.irs": path.read_bytes()})


FORMATS: dict[str, Callable[[], Iterator[Seed]]] = {
    "onnx": _onnx, "pt2": _exported, "torchscript": _torchscript, "checkpoint": _checkpoints, "gguf": _gguf, "irs": _irs,
    "recording": _recordings, "device": _devices, "reproducer": _reproducers, "inductor": _inductor, "aoti": _aoti,
    "stablehlo": _stablehlo, "bytecode": _bytecode, "archive": _archives, "hub": _hub, "snapshot": _snapshots, "options": _options,
}  # fmt: skip
_SAMPLES = {"pt2": ("zip", ("net.pt2",)), "torchscript": ("zip", ("net.pt",))}
