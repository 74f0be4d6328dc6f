"""Codes 1xx: reading a model."""

from __future__ import annotations

from typing import Final

from irscope.codes.record import CodeDoc

CODES: Final[dict[str, CodeDoc]] = {
    "IRS100": CodeDoc("The model cannot be read", "The file is missing, unreadable or of a kind irscope has no reader for."),
    "IRS101": CodeDoc(
        "A plugin cannot be imported",
        "An installed package offers passes, operators, devices or advice through an entry point, but importing it failed. It was skipped.",
    ),
    "IRS120": CodeDoc(
        "The graph breaks a rule of the IR", "A value is used before it is defined, defined twice, or belongs to another graph."
    ),
    "IRS121": CodeDoc("The .irs text does not parse", "The message gives line and column; the caret shows where reading stopped."),
    "IRS122": CodeDoc(
        "A value is read where it does not exist",
        "It is defined later, in another region or graph, or was erased by a pass that left a reader.",
    ),
    "IRS123": CodeDoc(
        "A value and its readers disagree", "The list of readers that each value keeps does not match the nodes and graphs that read it."
    ),
    "IRS124": CodeDoc("A name stands for two values", "Inside a graph and the graphs around it, each value has a name of its own or none."),
    "IRS125": CodeDoc(
        "A call leads nowhere", "A cf.call node names a function that the model does not have, or functions call one another in a circle."
    ),
    "IRS126": CodeDoc(
        "An attribute does not hold what it may",
        "Attributes hold numbers, strings, sizes, types and tuples of these; inplace names an input.",
    ),
    "IRS127": CodeDoc(
        "A size has two sets of bounds", "Sizes of one name are one size, so they must be declared with the same bounds everywhere."
    ),
    "IRS140": CodeDoc("The ONNX file cannot be opened", "It is missing, empty, not readable or not a regular file."),
    "IRS141": CodeDoc(
        "Not an ONNX model",
        "The file is damaged, cut short, nested deeper than protobuf allows, or no ONNX model at all. Export or download it again.",
    ),
    "IRS142": CodeDoc("An ONNX graph is not well formed", "A name is used that nothing makes, or two things have one name."),
    "IRS143": CodeDoc("An ONNX graph has a cycle", "A node needs its own result, so the graph can never run."),
    "IRS144": CodeDoc(
        "An ONNX tensor is not well formed",
        "Its element type does not exist, a size is negative or absurd, or its data do not have the length that its type needs.",
    ),
    "IRS145": CodeDoc(
        "External tensor data must not be used",
        "External data must be a regular file, without other names, in the folder of the model (or, in the cache of a hub, in that "
        "repository's own blobs). "
        "Paths that lead elsewhere are refused, and so are offsets and lengths that do not fit. Nothing outside is opened.",
    ),
    "IRS146": CodeDoc("An ONNX function cannot be inlined", "It calls itself, or it is defined twice."),
    "IRS147": CodeDoc(
        "An ONNX model is too large to analyse", "Inlining, nesting or the number of nodes passes a limit that real models stay far below."
    ),
    "IRS148": CodeDoc("--input does not fit the ONNX model", "It names an input that does not exist, or one whose value is in the file."),
    "IRS150": CodeDoc("Nodes of an ONNX graph are out of order", "They were sorted. Other tools may refuse such a file."),
    "IRS151": CodeDoc(
        "Version of an ONNX model",
        "The model is newer than the installed onnx package, or does not say its version. It is analysed as far as possible.",
    ),
    "IRS152": CodeDoc(
        "An ONNX operator that irscope does not know",
        "Its results keep the types that the file declares, and its cost is unknown. `irscope ops` lists what is known; plugins add more.",
    ),
    "IRS153": CodeDoc(
        "An ONNX node does not fit its operator",
        "An attribute or operand is missing or of the wrong kind. The node is kept, its results are unknown.",
    ),
    "IRS154": CodeDoc(
        "A dimension name was replaced", "The file calls a size something that is neither a name nor a formula. --bind takes the new name."
    ),
    "IRS155": CodeDoc(
        "ONNX inputs that have a value in the file", "Old exporters list weights as inputs too. They are analysed as weights."
    ),
    "IRS156": CodeDoc("External data are missing", "Shapes, memory and cost do not need them; passes that read values do."),
    "IRS157": CodeDoc("Training information was not read", "The ONNX file describes a training step besides the inference graph."),
    "IRS130": CodeDoc(
        "A damaged or hostile archive",
        "The zip archive's directory breaks a rule: names, sizes, overlaps, checksums. Nothing was unpacked. Copy or save the file again.",
    ),
    "IRS131": CodeDoc("An archive lacks a file", "A file that every archive of this kind has is missing. Save the model again."),
    "IRS132": CodeDoc(
        "An entry of an archive is too large",
        "A description would unpack to more than irscope reads. Weights are never unpacked, so a healthy model never comes here.",
    ),
    "IRS133": CodeDoc(
        "A pickle cannot be read",
        "The pickle is damaged, or uses what PyTorch never writes. irscope reads pickles as data and executes nothing in them.",
    ),
    "IRS134": CodeDoc("A weight does not fit its file", "The model describes a weight as larger than the bytes that are there."),
    "IRS135": CodeDoc(
        "The exported program cannot be read",
        "models/*.json in the .pt2 archive does not have the form that torch.export writes. Export the model again.",
    ),
    "IRS136": CodeDoc(
        "A .pt2 layout that is not read",
        "The archive was written by an older torch or has another schema version. Export the model again with a current torch.",
    ),
    "IRS137": CodeDoc("A .pt2 archive with several models", "One of them was read; the message names it."),
    "IRS138": CodeDoc(
        "A newer .pt2 schema",
        "The file was written by a torch newer than this irscope knows. It was read as far as it is understood.",
    ),
    "IRS139": CodeDoc("Too many nodes", "The model has, or unrolls to, more than five million operations."),
    "IRS160": CodeDoc("A checkpoint cannot be read", "The file is damaged or cut off. Copy or save it again."),
    "IRS161": CodeDoc("Nothing to analyse", "The file holds neither a graph nor tensors."),
    "IRS162": CodeDoc(
        "A pickled module has no graph",
        "The file holds an nn.Module as a pickle: weights are listed, but its code is not in the file. Use torch.export to get a graph.",
    ),
    "IRS163": CodeDoc(
        "Objects that were not interpreted",
        "The pickle holds objects other than tensors and containers. They were left alone; nothing was executed.",
    ),
    "IRS164": CodeDoc("A shard is missing", "The index of a checkpoint names a file that is not beside it."),
    "IRS165": CodeDoc(
        "Weights without a graph",
        "Checkpoints hold parameters only. Their table is complete; shapes, cost and memory of a run need a model with a graph.",
    ),
    "IRS166": CodeDoc(
        "An optimizer's state in a checkpoint",
        "Moments and step counters lie beside the parameters. They are listed as buffers, so that parameters are not counted twice.",
    ),
    "IRS170": CodeDoc(
        "An operator without a record",
        "irscope has no rules for this operator: sizes that depend on it stay unknown, and so does its cost: totals are then lower bounds.",
    ),
    "IRS171": CodeDoc(
        "A higher-order operator is not understood",
        "The graphs inside it are left out: their nodes, memory and cost are missing from every answer.",
    ),
    "IRS172": CodeDoc(
        "An operator contradicts its operands",
        "Sizes or element types do not fit the operator. The inputs given with --input may be wrong for the model.",
    ),
    "IRS180": CodeDoc(
        "TorchScript code that does not parse",
        "A file under code/ in the archive is no TorchScript code. Save the model again.",
    ),
    "IRS181": CodeDoc(
        "TorchScript objects that cannot be read",
        "data.pkl or constants.pkl does not have the form that torch.jit.save writes. Save the model again.",
    ),
    "IRS182": CodeDoc(
        "TorchScript code that cannot be followed",
        "The code does something irscope does not follow; the message names file and line. Export the model another way.",
    ),
    "IRS183": CodeDoc(
        "TorchScript code depends on an unknown size",
        "A branch or size depends on a number that is only known when the model runs. Give sizes with --input or --bind.",
    ),
    "IRS184": CodeDoc(
        "The model raises for these inputs",
        "With these inputs the model's own code raises an exception. Give inputs that it accepts with --input.",
    ),
    "IRS185": CodeDoc(
        "A scripted model needs the types of its inputs",
        "Scripted TorchScript does not record what it is called with. Example: --input x=f32[1,3,224,224]",
    ),
    "IRS173": CodeDoc(
        "Types from torch",
        "With --use-torch, torch's own fake tensors said what an operator without a record returns. Without torch nothing is asked.",
    ),
    "IRS186": CodeDoc(
        "Inputs of a scripted model are guessed",
        "The file does not say what the model is called with. The guess follows from use: a convolution gives channels, an embedding "
        "whole numbers. Heights, widths and lengths are usual ones (224, 128) or those that the code asserts. Every number that depends on "
        "them is marked as assumed, and --strict fails. --input gives the real types.",
    ),
    "IRS187": CodeDoc(
        "No CUDA device could be pretended",
        "A live model is captured on a CUDA device that need not exist. "
        "This torch was built without CUDA, and its inner tables are not where "
        "they are known to be, so the model was captured on the CPU. Sizes are right; "
        "some results may have another memory layout than on a card.",
    ),
    "IRS188": CodeDoc(
        "The model looks at values",
        "A live model is captured without computing anything, so a branch or a size that depends on a tensor's values cannot be decided, "
        "unless they follow from arguments that are real tensors. The message has the line of the model and what to pass.",
    ),
    "IRS189": CodeDoc(
        "The model failed while it was captured",
        "Its forward raised an error, as it would in a run with these arguments. The message has the line of the model.",
    ),
    "IRS190": CodeDoc(
        "An operator cannot run without data",
        "An extension's operator says nothing about the sizes of its results. torch.library.register_fake adds what is missing.",
    ),
    "IRS191": CodeDoc(
        "This is no module that can be captured",
        "`irscope.capture` takes an nn.Module all of whose parameters have sizes, and of which this process holds the whole: a module that "
        "is sharded over processes or devices (FSDP, DTensor, DeepSpeed, device_map) is refused, as is a TorchScript module.",
    ),
    "IRS192": CodeDoc("Live models need torch", "Install torch to capture modules; model files are read without it."),
    "IRS193": CodeDoc(
        "A size depends on values",
        "How much an operator such as nonzero finds depends on values that a captured model does not have. "
        "A number was taken, at most 256, and every number that follows from it is marked as assumed. "
        "Sizes that follow from arguments alone are exact where these are real tensors.",
    ),
    "IRS195": CodeDoc(
        "A package for models by name is not installed",
        "torchvision:, timm: and transformers: name models of these packages, which have to be installed beside torch.",
    ),
    "IRS196": CodeDoc("No model of that name", "The package is installed and has no such model. `irscope zoo` lists what there is."),
    "IRS197": CodeDoc(
        "A named model that cannot be made",
        "The package refused: the message has its words. Often it needs another package, a setting, or a file that would be downloaded.",
    ),
    "IRS198": CodeDoc(
        "A named model whose inputs are not known",
        "irscope knows the shapes of token ids, pictures, sounds and features. Other models can be captured from Python: irscope.capture.",
    ),
    "IRS199": CodeDoc(
        "The program that is analysed is not quite the one that runs",
        "What runs around or in place of the model is not analysed: code that torch.compile generates, gradients exchanged by DDP, weights "
        "moved by hooks, quantised weights of a configuration. The message names it. Numbers are marked as assumed, and --strict fails.",
    ),
    "IRS194": CodeDoc(
        "The model runs too many operators",
        "A captured forward may run 500,000 operators. A loop over the elements of a large tensor is the usual reason.",
    ),
    "IRS102": CodeDoc(
        "The model file is empty", "A file of zero bytes is no model. An interrupted export or download leaves one; do it again."
    ),
    "IRS103": CodeDoc(
        "The file is no model irscope knows",
        "Files are recognised by content: ONNX, torch.export archives, TorchScript archives, checkpoints, safetensors and .irs.",
    ),
    "IRS104": CodeDoc(
        "This kind of model has no reader", "The kind was recognised; the message says in which form to bring the model instead."
    ),
    "IRS106": CodeDoc(
        "The file asks for more than can be read",
        "Reading it would need more time, memory or nesting than a model has any use for: the file is damaged or hostile. One budget holds "
        "for a whole load: 10 CPU seconds (and 4 for each megabyte of structure), and 500 MB beyond ten times the file's size. The message "
        "names what passed it. --budget 60s,4GB allows more, if you know where the file comes from.",
    ),
    "IRS108": CodeDoc(
        "There can be no such tensor",
        "An input or weight has a negative size, or 2^57 elements or more: the file is damaged or hostile.",
    ),
    "IRS107": CodeDoc(
        "The file does not have the form of its kind",
        "The reader met something that no file of this kind holds; the message says what, and where in the reader. The file is damaged or "
        "hostile. If PyTorch or ONNX Runtime reads it, irscope should too: please report it with the output of --debug.",
    ),
}
