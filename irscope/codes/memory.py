"""Codes 3xx: aliasing, memory, schedules and training."""

from __future__ import annotations

from typing import Final

from irscope.codes.record import CodeDoc

CODES: Final[dict[str, CodeDoc]] = {
    "IRS364": CodeDoc(
        "Recomputing without sizes",
        "Recomputing a tensor saves its size, and the sizes of some tensors depend on data.",
    ),
    "IRS365": CodeDoc(
        "No solver to place buffers with",
        "engine=cpsat asks Google's CP-SAT whether an arena of a given height is possible. It is optional: pip install irscope[solver].",
    ),
    "IRS366": CodeDoc(
        "A cycle of dependences",
        "The dependences between nodes form a cycle, so that there is no topological order. The message names the nodes.",
    ),
    "IRS301": CodeDoc(
        "Tensors of unknown size are not counted",
        "The peak is unknown where the size of a tensor is. "
        "Bind the symbols or give the inputs types: --bind batch=8, --input x=f32[1,3,224,224].",
    ),
    "IRS302": CodeDoc(
        "The model does not fit on the device",
        "The simulated allocator runs out of memory while the model is loaded or run. The message says how much more it needs and "
        "which known device has as much; `irscope fit` finds the largest batch that fits.",
    ),
    "IRS320": CodeDoc(
        "The simulated device is out of memory",
        "The allocator gave back everything that was cached, and the request still does not fit. PyTorch "
        "would raise OutOfMemoryError here.",
    ),
    "IRS321": CodeDoc(
        "An option of ONNX Runtime's arena does not exist",
        "Regions grow by next_power_of_two (ONNX Runtime's default, kNextPowerOfTwo) or are same_as_requested (kSameAsRequested), "
        "and have a size above zero.",
    ),
    "IRS322": CodeDoc(
        "The simulated arena of ONNX Runtime is out of memory",
        "No free chunk is large enough, and the arena's limit or the device leaves no room for another region. "
        'ONNX Runtime would fail with "Failed to allocate memory for requested buffer" here.',
    ),
    "IRS350": CodeDoc(
        "Buffers that cannot be placed",
        "Offsets need a start, an end and a size for each buffer, no end before its start and no size below zero.",
    ),
    "IRS351": CodeDoc("An impossible alignment", "Offsets are multiples of the alignment, which must be at least 1."),
    "IRS352": CodeDoc(
        "A schedule or plan needs numbers",
        "The best order and the best addresses depend on sizes, so every symbol has to be bound: --bind batch=8.",
    ),
    "IRS353": CodeDoc(
        "Tensors without a size in a schedule",
        "Their sizes depend on data. The order is for all other tensors, peaks are lower bounds, and optimality is not proven.",
    ),
    "IRS354": CodeDoc(
        "An impossible search for a schedule", "Seconds are at least 0, and the share by which latency may grow is one such as 5%."
    ),
    "IRS355": CodeDoc("Tensors without a size in a plan", "Addresses need sizes, and those of some tensors depend on data."),
    "IRS356": CodeDoc("An invalid plan", "Two buffers whose live ranges overlap were given the same bytes. This is a fault of irscope."),
    "IRS357": CodeDoc(
        "A file whose nodes have no order of their own",
        "ONNX and .pt2 files list their nodes, so that a copy can list them in another order. Other formats do not, or the name of the "
        "copy has another ending than the file.",
    ),
    "IRS358": CodeDoc(
        "A reordered copy cannot be made",
        "External data of the model is not there, would have to be written over another file, or the archive is packed in a way that "
        "torch does not use.",
    ),
    "IRS359": CodeDoc(
        "A lifetime model that does not apply to files",
        "Programs in files free tensors after their last use, as schedule{model=ssa} says. model=eager is about Python's own variables.",
    ),
    "IRS361": CodeDoc(
        "A copy in the place of its original", "The reordered model has to have another name than the model that it is made from."
    ),
    "IRS362": CodeDoc(
        "No graph to put into another order",
        "`irscope.scheduled` takes an ExportedProgram, or an nn.Module with arguments for which torch.export makes one.",
    ),
    "IRS373": CodeDoc(
        "A training step that cannot be made",
        "An optimizer, a loss or an option of the step is not known; the message lists those that are.",
    ),
    "IRS374": CodeDoc(
        "Nothing to train", "None of the model's parameters needs a gradient. requires_grad_(True) on a parameter makes it a trained one."
    ),
    "IRS375": CodeDoc(
        "The loss is no scalar",
        "A backward starts from one number. The loss is a function of what the model returns, and has to reduce it.",
    ),
    "IRS376": CodeDoc(
        "The loss depends on no parameter",
        "Somewhere between parameters and loss the gradient is cut: detach(), no_grad(), or whole numbers.",
    ),
    "IRS377": CodeDoc(
        "An operation in place that autograd refuses",
        "The backward needs a tensor that was written over, or a parameter is written to. "
        "The form without the underscore makes a new tensor.",
    ),
    "IRS378": CodeDoc(
        "A training step that depends on data",
        "The model reads values of tensors to decide what to run, and they do not follow from inputs whose values are known. Nothing else "
        "is computed while a step is captured.",
    ),
    "IRS379": CodeDoc(
        "The training step fails", "The model, its loss or its optimizer raised an error while the step was captured, as it would in a run."
    ),
    "IRS380": CodeDoc(
        "Recurrent layers without cuDNN",
        "How much cuDNN saves of a recurrent layer for the backward is known on the device only. "
        "The step is counted with PyTorch's own kernels.",
    ),
    "IRS381": CodeDoc(
        "No training step in the model",
        "The pass looks at a captured training step. `irscope train-plan` and `irscope.capture_training` make one.",
    ),
    "IRS382": CodeDoc(
        "Memory of a kernel in training is unknown",
        "irscope has no record of the operator. Its results are counted; what its kernel takes besides counts as nothing.",
    ),
    "IRS383": CodeDoc("A training step does not fit", "The numbers are those of a device with enough memory."),
    "IRS384": CodeDoc(
        "Training needs a live module",
        "A model file usually holds a forward only. A name such as torchvision:resnet50, or a function in a script (./train.py:build), "
        "gives a module; a .pt2 file is taken where it holds forward and backward in one graph.",
    ),
    "IRS385": CodeDoc(
        "A script that gives no training step",
        "The function that is named after the colon must return (module, inputs), and may add a loss and an optimizer.",
    ),
    "IRS386": CodeDoc(
        "Sizes of the batch that cannot be used",
        "`--batches` takes whole numbers, and changes the inputs of named models. `--nodes-csv` and `--activations-csv` are about one "
        "size: `--bind batch=8`.",
    ),
    "IRS387": CodeDoc("A picture of bars in the terminal", "`--picture categories` and `idle` are drawn into a file: `--plot FILE.svg`."),
    "IRS388": CodeDoc(
        "A graph without a training step",
        "`irscope train-plan model.pt2` needs forward and backward in one graph, as torch.export's joint export gives, with known sizes.",
    ),
    "IRS390": CodeDoc(
        "A budget of memory below what any plan of checkpointing needs",
        "Whatever is recomputed, some operator needs its operands, its results and what cannot be recomputed at the same time. "
        "The message names it and the bytes.",
    ),
    "IRS391": CodeDoc("A checkpoint plan for another model", "The plan names submodules that this module does not have."),
    "IRS392": CodeDoc("A file that is no checkpoint plan", "Plans are the JSON of `irscope.plan_checkpoints(...).document()`."),
    "IRS393": CodeDoc("A budget that is no amount of memory", "Write an amount, such as 24GiB, or a share of the peak, such as 60%."),
    "IRS394": CodeDoc(
        "A plan for the live module that cannot be made",
        "`--plan-out` needs `--budget` and a live module, one size of the batch, and no autocast.",
    ),
    "IRS330": CodeDoc(
        "A size is needed that was not given", "A formula has no number until each of its symbols has a size: --bind batch=8."
    ),
    "IRS331": CodeDoc(
        "The sizes to look at do not parse", "They are ranges and lists, such as batch=1..128, batch=1,2,4,8 or batch=8..64..8."
    ),
    "IRS332": CodeDoc(
        "The model has no open size",
        "Every size was fixed when it was exported. Export it with dynamic shapes: torch.export.export(model, args, "
        "dynamic_shapes=({0: torch.export.Dim('batch')},)), or torch.onnx.export with the same dynamic_shapes.",
    ),
    "IRS333": CodeDoc(
        "The peak is unknown",
        "Some tensors have sizes that depend on data, so no binding of symbols tells what they need. "
        "`irscope run --passes shapes` names them, with what would make them known.",
    ),
    "IRS334": CodeDoc(
        "The model cannot be bound anew",
        "Only a model from a file, or by name, can be read again with other sizes; a live module is captured again instead.",
    ),
    "IRS335": CodeDoc(
        "The model does not fit",
        "Not even the smallest size fits into the memory there is. The message says how much would be enough; "
        "`irscope run --passes explain-peak` lists the changes that lower the peak most.",
    ),
    "IRS336": CodeDoc(
        "Not an amount",
        "Amounts are a number with an optional unit: 24GiB, 2.5G, 500ms, 60%. K, M, G, T, P, E are powers of 1000, with or without B or "
        "FLOPs; Ki, Mi, Gi, Ti, Pi, Ei are powers of 1024. Upper and lower case mean the same.",
    ),
    "IRS337": CodeDoc(
        "`irscope fit` cannot look for that", "--free takes one symbol or two different ones; --counter takes a counter's name."
    ),
    "IRS338": CodeDoc(
        "Another size is open", "The peak depends on a further symbol. Give it a size with --bind, or ask for a frontier: --free batch,seq."
    ),
    "IRS339": CodeDoc(
        "Nothing to export",
        "`irscope export` writes .pickle, .json or .csv, and every size in them has to be a number: give symbols a size with --bind.",
    ),
}
