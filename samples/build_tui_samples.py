"""Writes the samples that `irscope tui` offers: the ONNX samples as text, without the values of their weights."""

from __future__ import annotations

from pathlib import Path

from irscope.ir.places import Literal
from irscope.ir.printer import print_program
from irscope.session import open_model

HERE = Path(__file__).parent
SAMPLES = {"cnn": "image-network", "transformer": "transformer"}


def main() -> None:
    """Write all of them."""
    for source, name in SAMPLES.items():
        program = open_model(HERE / "models" / f"{source}.onnx").program
        for graph in program.bodies():
            for weight in list(graph.data):
                if not isinstance(graph.data[weight], Literal):
                    del graph.data[weight]
        target = HERE.parent / "tui" / "samples" / f"{name}.irs"
        target.write_text(print_program(program), encoding="utf-8")
        print(target)


if __name__ == "__main__":
    main()
