"""Codes 6xx: usage."""

from __future__ import annotations

from typing import Final

from irscope.codes.record import CodeDoc

CODES: Final[dict[str, CodeDoc]] = {
    "IRS600": CodeDoc("Usage", "The command line asks for something that does not exist; `irscope COMMAND --help` lists what does."),
    "IRS601": CodeDoc("The pipeline text does not parse", "Example: shapes,liveness{model=eager},./my_pass.py:MyPass{top=5}"),
    "IRS610": CodeDoc(
        "The output cannot be written", "The file or folder given with -o cannot be written. No partial file is left behind."
    ),
    "IRS620": CodeDoc(
        "A dimension cannot have this size",
        "A symbol was bound to a size outside its limits, or its limits leave no size at all. The message names the symbol and the limits.",
    ),
    "IRS621": CodeDoc(
        "The dimension formula does not parse",
        "Formulas have numbers, names, + - * // % ** ( ), max, min, floor, ceil and mod; unknown sizes start with ?. "
        "Example: 2*batch*(seq//2) + 1. A caret shows the column.",
    ),
    "IRS622": CodeDoc(
        "The dimension formula has no value",
        "It divides by zero, or raises to a power that is negative or too large.",
    ),
    "IRS661": CodeDoc(
        "A recording of another model", "Hardly any of the recorded operators is in the model. Give the model that was recorded."
    ),
    "IRS662": CodeDoc("Two recordings cannot be compared", "`irscope compare` takes two models, or a model and a recording."),
    "IRS670": CodeDoc("A name does not parse", "Names are PACKAGE:MODEL, with options in braces: 'timm:resnet18{num_classes=10}'."),
    "IRS671": CodeDoc("A named model has no such size", "Its inputs have sizes with names, such as batch and seq; the message lists them."),
    "IRS672": CodeDoc(
        "A named model has no such option",
        "Options in braces are arguments of the package's own function or configuration; dtype is irscope's.",
    ),
    "IRS673": CodeDoc(
        "A size of a named model cannot stay open",
        "The model needs a number there, such as that of a loop: bind the size. torch.export, which was tried too, says "
        "in its words why not.",
    ),
    "IRS674": CodeDoc(
        "Models by name of an unknown package", "There is no such file, and names are taken from torchvision, timm and transformers only."
    ),
    "IRS675": CodeDoc("Exporting to ONNX needs onnxscript", "torch.onnx.export uses it; pip install onnxscript."),
    "IRS676": CodeDoc(
        "A named model that torch does not export", "The message has the exporter's words. Another format may accept the model."
    ),
    "IRS677": CodeDoc(
        "A named model too large to be exported",
        "Files hold weights, which have to be made first and do not fit into this machine's memory.",
    ),
    "IRS678": CodeDoc(
        "Only models by name are exported",
        "A model file is what an export makes. `irscope export --schedule` writes one with its nodes in another order.",
    ),
    "IRS660": CodeDoc(
        "A limit does not parse", "A limit is a name, > and a number, as in peak>5% or nodes>10; several are separated by commas."
    ),
    "IRS650": CodeDoc(
        "The recordings of a GPU cannot be read",
        "A folder holds machine.json, models.jsonl and kernels.jsonl; the message names file and line.",
    ),
    "IRS651": CodeDoc(
        "There is nothing to calibrate from",
        "Recordings must be of one device. Convolutions that ran on a GPU give rules for workspaces; three or more models that are still "
        "there give times.",
    ),
    "IRS602": CodeDoc("A name is claimed twice", "Two installed packages offer a pass or operator of one name. Uninstall one of them."),
    "IRS603": CodeDoc("There is no such operator", "`irscope ops` lists the operators and their families."),
    "IRS604": CodeDoc(
        "A pass is declared or combined wrongly", "The message says what does not fit, such as an analysis inside fixpoint(...)."
    ),
    "IRS605": CodeDoc("The pass has no such option", "`irscope passes NAME` lists its options."),
    "IRS606": CodeDoc(
        "An option has no such value", "The message says what the option takes; `irscope passes NAME` lists types and defaults."
    ),
    "IRS607": CodeDoc("This is no pass", "The name leads to something that is neither an analysis nor a transform."),
    "IRS608": CodeDoc(
        "The script has no such pass", "A reference is ./file.py:Name; without a name the file must define exactly one pass."
    ),
    "IRS609": CodeDoc(
        "The script raised an error", "Naming a script runs it. The message has the line in the script; --debug shows the traceback."
    ),
    "IRS623": CodeDoc(
        "The input does not fit",
        "--input takes NAME=TYPE, such as x=f32[1,3,224,224], where NAME is an input of the model or its position.",
    ),
    "IRS624": CodeDoc(
        "The binding does not parse", "--bind takes NAME=N pairs separated by commas, such as batch=8,seq=128, each name once."
    ),
    "IRS625": CodeDoc(
        "There is no such symbol", "--bind names the symbols of input sizes, or elements of small integer inputs; the message lists them."
    ),
    "IRS640": CodeDoc(
        "The allocator option cannot be used",
        "The options are those that PYTORCH_CUDA_ALLOC_CONF has in the given version of torch: "
        "name:value,name:value. The message lists them.",
    ),
    "IRS641": CodeDoc(
        "The version of torch is not known", "Allocator rules differ between versions; the message lists those that are known."
    ),
    "IRS642": CodeDoc(
        "The allocator was called with something impossible",
        "A block that is not in use (free it once, where it was made), a negative size, or a device or fraction that cannot be.",
    ),
    "IRS629": CodeDoc("A type does not parse", "A type is an element type with sizes, such as f32[batch,3,224,224] or i64[]."),
}
