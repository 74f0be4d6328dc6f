"""Every diagnostic and error code, one record each: the source of `irscope explain` and docs/codes.md.

Ranges: 1xx reading a model, 2xx shapes, 3xx aliasing and memory, 4xx cost, 5xx passes, 6xx usage, 9xx irscope itself.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CodeDoc:
    """What a code means and what its reader can do about it."""

    title: str
    text: str


CODES: dict[str, CodeDoc] = {
    "IRS100": CodeDoc("The model cannot be read", "The file is missing, unreadable or of a kind irscope has no reader for."),
    "IRS101": CodeDoc(
        "A plugin cannot be imported",
        "An installed package offers passes, frontends or operators through an entry point, but importing it failed. It was skipped.",
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
        "External data must be a regular file, without other names, in the folder of the model (or where a link to the model leads). "
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
    "IRS156": CodeDoc("External data are missing", "Shapes, memory and cost do not need them; passes that look at values do."),
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
        "irscope has no rules for this operator: sizes that depend on it stay unknown, and its cost is not counted.",
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
        "A branch or size depends on a number nobody knows before the model runs. Give sizes with --input or --bind.",
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
        "whole numbers, and the smallest height and width that the model accepts is taken. --input gives the real types.",
    ),
    "IRS500": CodeDoc("A pass failed", "The pass raised an error. A reproducer was written; `irscope repro FILE` runs it again."),
    "IRS510": CodeDoc(
        "A report does not hold together",
        "A pass built a table whose columns differ in length, whose kinds do not exist, or that holds something that cannot be shown.",
    ),
    "IRS530": CodeDoc("Interrupted", "The work was stopped before it ended. Nothing was written."),
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
        "Reading it would need more memory or deeper nesting than a model has any use for: the file is damaged or hostile.",
    ),
    "IRS201": CodeDoc(
        "The model contradicts an operator",
        "Operands of a node do not fit together, such as sizes that must agree and do not. "
        "Its results are unknown; the rest of the model is analysed.",
    ),
    "IRS202": CodeDoc(
        "A shape rule failed",
        "The rule of an operator raised an error: a bug in irscope or a plugin. It costs only the results of that node.",
    ),
    "IRS205": CodeDoc(
        "An operator has no record",
        "irscope does not know the operator. Its results have the types the file declares and its cost is unknown. "
        "docs/add-an-operator.md shows how to add a record, in irscope or in a plugin.",
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
        "Which order or address is best depends on sizes, so every symbol has to be bound: --bind batch=8.",
    ),
    "IRS353": CodeDoc(
        "Tensors without a size in a schedule",
        "Their sizes depend on data. The order is for all other tensors, peaks are lower limits, and nothing is proven.",
    ),
    "IRS354": CodeDoc(
        "An impossible search for a schedule", "Seconds are at least 0, and the share by which latency may grow is one such as 5%."
    ),
    "IRS355": CodeDoc("Tensors without a size in a plan", "Addresses need sizes, and those of some tensors depend on data."),
    "IRS356": CodeDoc(
        "A plan that does not hold", "Two buffers that are alive together were given the same bytes. This is a fault of irscope."
    ),
    "IRS401": CodeDoc(
        "The cost of an operator is unknown", "Its FLOPs and bytes are not part of the totals; the coverage line counts such nodes."
    ),
    "IRS402": CodeDoc(
        "There is nothing to explain",
        "--explain wants the name of a node, as the tables of `irscope run --passes flops` show it, and a pass that can explain numbers.",
    ),
    "IRS403": CodeDoc("There is no such counter", "`irscope compare-flops --help` lists the packages whose counts can be compared."),
    "IRS404": CodeDoc(
        "A counter is not installed", "The comparison runs the counter's own package; install it, or leave its name out of --against."
    ),
    "IRS405": CodeDoc(
        "A counter cannot count this model",
        "It cannot read this kind of file, or it failed on the model; the message says which. Other counters are compared all the same.",
    ),
    "IRS420": CodeDoc(
        "There is no such device",
        "`irscope devices` lists those that are known. "
        "--device also takes the path of a JSON file; docs/roofline.md shows how to write one.",
    ),
    "IRS421": CodeDoc(
        "A device file does not fit",
        "The message names the file and the field. Every figure has a value with its unit and names a source with a date.",
    ),
    "IRS422": CodeDoc(
        "This machine has not been measured",
        "The device `this` stands for the calibration that `irscope calibrate` makes in 10 seconds and keeps in your settings folder.",
    ),
    "IRS424": CodeDoc(
        "The time of a node is unknown",
        "Its cost is unknown, depends on symbols that --bind gives a size, or the device has no figure for its element type. "
        "It counts as nothing, so the lower bound still holds.",
    ),
    "IRS440": CodeDoc(
        "Values of a weight are not known",
        "The data are missing, shorter than the tensor, outside the model's folder, of no numeric type, or they changed while they "
        "were read. The other weights are complete; the exit code is 5. params{values allow=FOLDER} reads data that lie elsewhere.",
    ),
    "IRS441": CodeDoc(
        "A weight holds NaN or infinities",
        "Statistics are over the finite elements. A model with such weights returns NaN for most inputs.",
    ),
    "IRS471": CodeDoc(
        "A source of advice could not answer",
        "Something that it needs is not known, such as sizes or values of weights. The findings of the others are listed.",
    ),
    "IRS472": CodeDoc(
        "Two sources of advice have one name", "Installed plugins add sources to the pass advise, each under a name of its own."
    ),
    "IRS473": CodeDoc("There is no such topic of advice", "The option topics of the pass advise names sources; the message lists them."),
    "IRS450": CodeDoc(
        "--sort, --filter or --top does not fit",
        "They work on columns of the tables of a report, under the keys that --format csv shows. Example: "
        "--sort bytes --top 10 --filter 'dtype = f32 and name ~ \"layer1.*\"'. docs/cli.md has the grammar.",
    ),
    "IRS430": CodeDoc(
        "The picture cannot be drawn", "A plot is a .png, .svg or .pdf, of one symbol over several sizes. Two symbols make a table only."
    ),
    "IRS431": CodeDoc(
        "matplotlib is not installed", "Pictures need it: pip install irscope[plot]. Tables and curves in the terminal do not."
    ),
    "IRS501": CodeDoc("An analysis needs its own result", "Analyses ask one another in a circle. The message shows the way round."),
    "IRS502": CodeDoc(
        "A transform changed the graph and denied it",
        "`apply` must return True when it changed anything; results would go stale otherwise.",
    ),
    "IRS503": CodeDoc(
        "A transform left a broken graph",
        "With --verify-each the graph is checked after every transform; the message has the first broken rule.",
    ),
    "IRS504": CodeDoc("A transform has no result", "Only analyses have a result that another pass can get."),
    "IRS540": CodeDoc(
        "Something is unknown and --strict was given", "Without --strict the same run reports what it knows and exits with 0."
    ),
    "IRS330": CodeDoc(
        "A size is needed that nobody has given", "A formula has no number until each of its symbols has a size: --bind batch=8."
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
    "IRS334": CodeDoc("The model cannot be bound anew", "Only a model that was read from a file can be read again with other sizes."),
    "IRS335": CodeDoc(
        "The model does not fit",
        "Not even the smallest size fits into the memory there is. The message says how much would be enough; "
        "`irscope run --passes explain-peak` lists the changes that lower the peak most.",
    ),
    "IRS336": CodeDoc(
        "No amount of memory",
        "Amounts are written 24GiB, 80GB, 512MiB, or as a number of bytes. KiB, MiB, GiB are powers of 1024; KB, MB, GB powers of 1000.",
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
    "IRS900": CodeDoc("An error inside irscope", "This is a bug. Please report it with the reproducer or the output of --debug."),
}
