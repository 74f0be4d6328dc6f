"""Makes ONNX files by exporters and quantizers of the field: `python -m benchmarks.onnx_made FOLDER [KIND...]`.

`python -m tests.tools.oracle.ort_wild FOLDER --sizes height=64,width=64,num_channels=3` then holds memory of ONNX Runtime against its
prediction. Each kind needs packages of its
own, which rarely fit into one environment: `tf` tensorflow and tf2onnx, `keras` keras, `optimum` optimum-onnx and transformers 4,
`sklearn` skl2onnx, `hummingbird` hummingbird-ml, `post` onnxslim, and is left out where they are missing. `post` changes what the others
have made. Weights are chance; nothing is downloaded.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np

Made = Iterator[tuple[str, Callable[[Path], object]]]
"""Names of files, each with the function that writes it to a path."""


def of_tensorflow() -> Made:
    import keras
    import tensorflow as tf
    import tf2onnx

    layers, nets = keras.layers, keras.applications

    def exported(
        build: Callable[[], Any], shape: tuple[int | None, ...], dtype: Any = tf.float32, opset: int = 15
    ) -> Callable[[Path], object]:
        def write(path: Path) -> None:
            spec = (tf.TensorSpec(shape, dtype, name="x"),)
            model = build()
            tf2onnx.convert.from_function(tf.function(lambda x: model(x), input_signature=spec), spec, opset=opset, output_path=str(path))

        return write

    def detector() -> Any:
        body = nets.MobileNet(weights=None, input_shape=(128, 128, 3), include_top=False, alpha=0.25)
        head = layers.Conv2D(5, 1)

        def detect(x: Any) -> Any:
            rows = tf.reshape(head(body(x)), [-1, 5])[:16]
            boxes = tf.sigmoid(rows[:, :4])
            return tf.gather(boxes, tf.image.non_max_suppression(boxes, tf.sigmoid(rows[:, 4]), 5))

        return detect

    def repeated() -> Any:
        weight = tf.Variable(np.random.rand(16, 16).astype("f"))
        start = tf.constant(0)
        return lambda x: tf.while_loop(lambda i, _: i < 5, lambda i, h: (i + 1, tf.tanh(h @ weight)), [start, x])[1]

    for name, build, side in (
        ("mnv3", nets.MobileNetV3Small, 96),
        ("res50", nets.ResNet50, 64),
        ("effv2", nets.EfficientNetV2B0, 96),
        ("incep", nets.InceptionV3, 96),
        ("effb1", nets.EfficientNetB1, 64),
    ):
        yield f"t_{name}", exported(partial(build, weights=None, input_shape=(side, side, 3)), (None, side, side, 3))
    recurrent = [layers.LSTM(32, return_sequences=True), layers.GRU(16), layers.Dense(3)]
    yield "t_lstm", exported(lambda: keras.Sequential([layers.Input((24, 16)), *recurrent]), (None, 24, 16))
    yield "t_det", exported(detector, (1, 128, 128, 3))
    yield "t_while", exported(repeated, (4, 16))


def of_keras() -> Made:
    os.environ["KERAS_BACKEND"] = "torch"
    import keras

    layers, nets = keras.layers, keras.applications

    def exported(build: Callable[[], Any]) -> Callable[[Path], object]:
        def write(path: Path) -> None:
            model = build()
            model(np.zeros([1, *model.inputs[0].shape[1:]], model.inputs[0].dtype))
            model.export(str(path), format="onnx", verbose=False)

        return write

    for name, build in (
        ("mnv2", nets.MobileNetV2),
        ("effb0", nets.EfficientNetB0),
        ("dense", nets.DenseNet121),
        ("resv2", nets.ResNet50V2),
    ):
        yield f"k_{name}", exported(partial(build, weights=None, input_shape=(96, 96, 3)))
    both = [layers.Bidirectional(layers.LSTM(32, return_sequences=True)), layers.GRU(16)]
    yield "k_lstm", exported(lambda: keras.Sequential([layers.Input((20, 16)), *both, layers.Dense(3)]))
    causal = [layers.Conv1D(32, 3, padding="causal", dilation_rate=2**n, activation="relu") for n in range(3)]
    yield "k_tcn", exported(lambda: keras.Sequential([layers.Input((128, 8)), *causal, layers.GlobalAveragePooling1D(), layers.Dense(4)]))


def of_optimum() -> Made:
    import transformers as hub
    from optimum.exporters.onnx import main_export

    image = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
    text = {**image, "vocab_size": 500}
    sides = [
        *((f"{side}_layers", 2) for side in ("encoder", "decoder")),
        *((f"{side}_attention_heads", 4) for side in ("encoder", "decoder")),
    ]
    pair = {"d_model": 64, "encoder_ffn_dim": 128, "decoder_ffn_dim": 128, "vocab_size": 500, "max_position_embeddings": 64, **dict(sides)}
    stages = {"hidden_sizes": [16, 32, 32, 64], "depths": [1, 1, 1, 1]}
    few, heads = {"num_key_value_heads": 2}, {"num_attention_heads": [1, 2, 2, 4]}
    narrow, patches = {**text, "embedding_size": 32}, {**image, "image_size": 64, "patch_size": 16}
    windows = {"image_size": 64, "embed_dim": 32, "depths": [1, 1], "num_heads": [2, 4]}
    thin = {"width_coefficient": 0.25, "depth_coefficient": 0.25, "image_size": 64}
    plain = {"use_pretrained_backbone": False, "use_timm_backbone": False, "backbone": None}
    both = {"text_config": {**text, "projection_dim": 32}, "vision_config": {**patches, "projection_dim": 32}}
    gpt = {"n_embd": 64, "n_layer": 2, "n_head": 4, "vocab_size": 500, "n_positions": 64}
    local = {"num_layers": 2, "num_heads": 4, "attention_types": [[["global", "local"], 1]]}
    models: tuple[tuple[str, str, str, Mapping[str, Any]], ...] = (
        ("BertForSequenceClassification", "BertConfig", "text-classification", text),
        ("ElectraForTokenClassification", "ElectraConfig", "token-classification", {**text, "embedding_size": 32}),
        ("AlbertForMaskedLM", "AlbertConfig", "fill-mask", {**text, "embedding_size": 32}),
        ("ModernBertForMaskedLM", "ModernBertConfig", "fill-mask", {**text, "pad_token_id": 0}),
        ("XLMRobertaForMaskedLM", "XLMRobertaConfig", "fill-mask", text),
        ("LlamaForCausalLM", "LlamaConfig", "text-generation-with-past", {**text, **few}),
        ("Qwen3ForCausalLM", "Qwen3Config", "text-generation-with-past", {**text, **few, "head_dim": 16}),
        ("PhiForCausalLM", "PhiConfig", "text-generation-with-past", text),
        ("BloomForCausalLM", "BloomConfig", "text-generation-with-past", {"hidden_size": 64, "n_layer": 2, "n_head": 4, "vocab_size": 500}),
        ("GPTNeoXForCausalLM", "GPTNeoXConfig", "text-generation", text),
        ("BartForConditionalGeneration", "BartConfig", "text2text-generation-with-past", pair),
        ("ViTForImageClassification", "ViTConfig", "image-classification", {**image, "image_size": 64, "patch_size": 16}),
        ("DeiTForImageClassification", "DeiTConfig", "image-classification", {**image, "image_size": 64, "patch_size": 16}),
        ("YolosForObjectDetection", "YolosConfig", "object-detection", {**image, "image_size": [64, 96], "num_detection_tokens": 10}),
        ("ConvNextV2ForImageClassification", "ConvNextV2Config", "image-classification", stages),
        ("PoolFormerForImageClassification", "PoolFormerConfig", "image-classification", stages),
        ("ASTForAudioClassification", "ASTConfig", "audio-classification", {**image, "max_length": 64, "num_mel_bins": 32}),
        ("MobileBertForQuestionAnswering", "MobileBertConfig", "question-answering", {**narrow, "intra_bottleneck_size": 32}),
        ("SqueezeBertForSequenceClassification", "SqueezeBertConfig", "text-classification", {**text, "embedding_size": 64}),
        ("CamembertForMaskedLM", "CamembertConfig", "fill-mask", text),
        ("FlaubertModel", "FlaubertConfig", "feature-extraction", {"vocab_size": 500, "emb_dim": 64, "n_layers": 2, "n_heads": 4}),
        ("XLMModel", "XLMConfig", "feature-extraction", {"vocab_size": 500, "emb_dim": 64, "n_layers": 2, "n_heads": 4}),
        ("RoFormerForMaskedLM", "RoFormerConfig", "fill-mask", narrow),
        ("ConvBertForTokenClassification", "ConvBertConfig", "token-classification", narrow),
        ("IBertForSequenceClassification", "IBertConfig", "text-classification", text),
        ("Data2VecTextForMaskedLM", "Data2VecTextConfig", "fill-mask", text),
        ("LayoutLMForTokenClassification", "LayoutLMConfig", "token-classification", text),
        ("BeitForImageClassification", "BeitConfig", "image-classification", patches),
        ("ViTMSNForImageClassification", "ViTMSNConfig", "image-classification", patches),
        ("Swinv2ForImageClassification", "Swinv2Config", "image-classification", {**windows, "window_size": 4}),
        ("MobileNetV1ForImageClassification", "MobileNetV1Config", "image-classification", {"depth_multiplier": 0.25}),
        ("MobileNetV2ForImageClassification", "MobileNetV2Config", "image-classification", {"depth_multiplier": 0.25}),
        ("EfficientNetForImageClassification", "EfficientNetConfig", "image-classification", {**thin, "hidden_dim": 320}),
        ("RegNetForImageClassification", "RegNetConfig", "image-classification", {**stages, "groups_width": 8, "embedding_size": 16}),
        ("PvtForImageClassification", "PvtConfig", "image-classification", {**stages, **heads, "image_size": 64}),
        ("SegformerForSemanticSegmentation", "SegformerConfig", "semantic-segmentation", {**stages, **heads, "decoder_hidden_size": 32}),
        ("DetrForObjectDetection", "DetrConfig", "object-detection", {**pair, "num_queries": 10, **plain}),
        ("CLIPModel", "CLIPConfig", "zero-shot-image-classification", both),
        ("SiglipModel", "SiglipConfig", "zero-shot-image-classification", both),
        ("PegasusForConditionalGeneration", "PegasusConfig", "text2text-generation-with-past", pair),
        ("MBartForConditionalGeneration", "MBartConfig", "text2text-generation-with-past", pair),
        ("BlenderbotForConditionalGeneration", "BlenderbotConfig", "text2text-generation-with-past", pair),
        ("CodeGenForCausalLM", "CodeGenConfig", "text-generation-with-past", {**gpt, "rotary_dim": 8}),
        ("GPTJForCausalLM", "GPTJConfig", "text-generation-with-past", {**gpt, "rotary_dim": 8}),
        ("GPTBigCodeForCausalLM", "GPTBigCodeConfig", "text-generation-with-past", gpt),
        ("GPTNeoForCausalLM", "GPTNeoConfig", "text-generation-with-past", {**text, **local}),
        ("GemmaForCausalLM", "GemmaConfig", "text-generation-with-past", {**text, **few, "head_dim": 16}),
        ("FalconForCausalLM", "FalconConfig", "text-generation-with-past", text),
        ("MptForCausalLM", "MptConfig", "text-generation-with-past", {"d_model": 64, "n_heads": 4, "n_layers": 2, "vocab_size": 500}),
        ("OlmoForCausalLM", "OlmoConfig", "text-generation-with-past", text),
        ("GraniteForCausalLM", "GraniteConfig", "text-generation-with-past", {**text, **few}),
        ("Phi3ForCausalLM", "Phi3Config", "text-generation-with-past", {**text, **few, "pad_token_id": 0}),
        ("StableLmForCausalLM", "StableLmConfig", "text-generation-with-past", {**text, **few}),
    )

    def write(model: Any, task: str, path: Path) -> None:
        with tempfile.TemporaryDirectory() as scratch:
            model.eval().save_pretrained(scratch)
            main_export(scratch, scratch, task=task, do_validation=False)
            for file in Path(scratch).glob("*.onnx"):
                shutil.copy(file, path if file.stem == "model" else path.with_stem(f"{path.stem}_{file.stem}"))

    for model, config, task, sizes in models:
        yield f"o_{config.removesuffix('Config').lower()}", partial(write, getattr(hub, model)(getattr(hub, config)(**sizes)), task)


def of_sklearn() -> Made:
    import onnx
    from skl2onnx import to_onnx
    from sklearn import cluster, ensemble, gaussian_process, naive_bayes, neighbors, neural_network, svm

    rows = np.random.rand(300, 20).astype("f")
    classes, sums = (rows.sum(1) > rows.sum(1).mean()).astype(int), rows.sum(1)
    for name, model, wanted in (
        ("forest", ensemble.RandomForestClassifier(40), classes),
        ("boost", ensemble.GradientBoostingRegressor(), sums),
        ("mlp", neural_network.MLPClassifier((64, 32), max_iter=20), classes),
        ("svc", svm.SVC(), classes),
        ("knn", neighbors.KNeighborsClassifier(), classes),
        ("gp", gaussian_process.GaussianProcessRegressor(), sums),
        ("kmeans", cluster.KMeans(5), classes),
        ("nb", naive_bayes.GaussianNB(), classes),
    ):
        yield f"s_{name}", lambda path, model=model, wanted=wanted: onnx.save(to_onnx(model.fit(rows, wanted), rows[:1]), path)


def of_hummingbird() -> Made:
    import torch.onnx
    from hummingbird.ml import convert
    from sklearn import ensemble, linear_model, pipeline, preprocessing

    # It traces, which torch's exporter does by default no more.
    torch.onnx.export = partial(torch.onnx.export, dynamo=False)
    rows = np.random.rand(300, 20).astype("f")
    classes = (rows.sum(1) > rows.sum(1).mean()).astype(int)

    def write(model: Any, path: Path) -> None:
        with tempfile.TemporaryDirectory() as scratch:
            convert(model.fit(rows, classes), "onnx", rows).save(f"{scratch}/made")
            with zipfile.ZipFile(f"{scratch}/made.zip") as archive:
                path.write_bytes(archive.read("deploy_model.onnx"))

    yield "h_forest", partial(write, ensemble.RandomForestClassifier(10, max_depth=6))
    yield "h_linear", partial(write, pipeline.make_pipeline(preprocessing.StandardScaler(), linear_model.LogisticRegression()))


def of_post(folder: Path) -> Made:
    import onnx
    import onnxslim
    from onnxruntime import quantization
    from onnxruntime.transformers.float16 import convert_float_to_float16

    class Chance(quantization.CalibrationDataReader):
        """Two batches of chance for the one input of a model."""

        def __init__(self, model: Path) -> None:
            given = onnx.load(model).graph.input[0]
            shape = [dim.dim_value or (3 if dim.dim_param == "num_channels" else 64 if at > 1 else 1)
                     for at, dim in enumerate(given.type.tensor_type.shape.dim)]  # fmt: skip
            self.batches = iter([{given.name: np.random.rand(*shape).astype("f")} for _ in range(2)])

        def get_next(self) -> dict[str, Any] | None:
            return next(self.batches, None)

    def quantized(model: Path, options: Mapping[str, Any], path: Path) -> None:
        quantization.quantize_static(model, path, Chance(model), **{"quant_format": quantization.QuantFormat.QDQ, **options})

    for model in sorted(folder.glob("o_*.onnx")):
        if "_dq" not in model.stem:
            yield f"{model.stem}_dq", partial(quantization.quantize_dynamic, model)
    for name, options in (
        ("t_res50", {"per_channel": True}),
        ("t_mnv3", {"quant_format": quantization.QuantFormat.QOperator}),
        ("k_mnv2", {}),
        ("k_effb0", {}),
        ("o_convnextv2", {"activation_type": quantization.QuantType.QInt8, "weight_type": quantization.QuantType.QInt8}),
        ("o_deit", {"per_channel": True}),
    ):
        yield f"{name}_qdq", partial(quantized, folder / f"{name}.onnx", options)
    for name in ("t_effb1", "o_electra", "o_vit", "o_yolos"):
        yield f"{name}_slim", lambda path, name=name: onnx.save(onnxslim.slim(str(folder / f"{name}.onnx")), path)
    for name in ("t_incep", "o_deit", "o_xlmroberta"):
        yield (
            f"{name}_f16",
            lambda path, name=name: onnx.save(convert_float_to_float16(onnx.load(folder / f"{name}.onnx"), keep_io_types=True), path),
        )


KINDS: Final[Mapping[str, Callable[[Path], Made]]] = {
    "tf": lambda _: of_tensorflow(),
    "keras": lambda _: of_keras(),
    "optimum": lambda _: of_optimum(),
    "sklearn": lambda _: of_sklearn(),
    "hummingbird": lambda _: of_hummingbird(),
    "post": of_post,
}


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.onnx_made", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("kinds", nargs="*", help=", ".join(KINDS))
    chosen = parser.parse_args()
    chosen.folder.mkdir(parents=True, exist_ok=True)
    for kind in chosen.kinds or KINDS:
        np.random.seed(0)
        try:
            for name, write in KINDS[kind](chosen.folder):
                path = chosen.folder / f"{name}.onnx"
                if path.exists():
                    continue
                try:
                    write(path)
                    print(f"{name}: made", flush=True)
                except Exception as error:  # exporters fail in their own ways, and the next file is worth trying
                    print(f"{name}: {type(error).__name__}: {str(error).splitlines()[0][:160] if str(error) else ''}", flush=True)
        except ImportError as error:
            print(f"{kind}: {error}", flush=True)


if __name__ == "__main__":
    main()
