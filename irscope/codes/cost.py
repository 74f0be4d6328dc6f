"""Codes 4xx: cost, weights, recordings and comparisons."""

from __future__ import annotations

from typing import Final

from irscope.codes.record import CodeDoc

CODES: Final[dict[str, CodeDoc]] = {
    "IRS401": CodeDoc(
        "The cost of an operator is unknown",
        "Its FLOPs and bytes are not in the totals, which are then lower bounds; the coverage line counts such nodes.",
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
        "The device `this` stands for this machine as `irscope calibrate` measures it, in about 10 seconds; the result is kept "
        "in your settings folder.",
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
    "IRS474": CodeDoc("The recording cannot be opened", "It is missing, not readable, no regular file, or larger than any recording is."),
    "IRS475": CodeDoc(
        "This is no recording", "A recording is a JSON Lines file whose first line is a header; `irscope record` writes them."
    ),
    "IRS476": CodeDoc(
        "The recording has a schema that this irscope does not know",
        "The first line of a recording names its schema and version. Use the irscope that wrote it, or record again.",
    ),
    "IRS477": CodeDoc(
        "A line of the recording is wrong",
        "It is no JSON, lacks a field, holds something else than the field is for, or names an operator that is not there. "
        "docs/recording.md has the fields.",
    ),
    "IRS490": CodeDoc(
        "A limit of --fail-on is passed", "The comparison found a difference beyond the limit; the message has both numbers."
    ),
    "IRS491": CodeDoc(
        "A limit of --fail-on cannot be judged",
        "A number that it needs is not known, for example because sizes are open. Bind symbols with --bind, or leave the limit out.",
    ),
    "IRS492": CodeDoc(
        "More than one copy of the model was on the device",
        "What was in use before the recorded run is far more than the model and its inputs take. "
        "Record in a process that holds the model once.",
    ),
    "IRS493": CodeDoc(
        "A recording reports a problem",
        "Something happened while the model was recorded that may affect the numbers; the message says what.",
    ),
    "IRS494": CodeDoc("A recording is not complete", "It was cut short or the run failed; what was recorded before is compared."),
    "IRS495": CodeDoc(
        "Another file than the recorded one", "Its contents differ, but its nodes match by name or structure, so that it is compared."
    ),
    "IRS496": CodeDoc("Another input than the recorded one", "The prediction is for other sizes or types than those of the recorded run."),
    "IRS478": CodeDoc(
        "The model cannot be run with these inputs",
        "Each input needs an element type and sizes: --input x=f32[1,3,224,224], --bind batch=1, "
        "or --values FILE.npz with values that fit.",
    ),
    "IRS479": CodeDoc(
        "What runs the model is missing",
        "PyTorch or ONNX Runtime is not installed, has no such device, or sees no usable driver. `irscope doctor` lists what is there.",
    ),
    "IRS480": CodeDoc(
        "The run did not come to its end",
        "The recording holds what was seen until then: operators, memory that was in use, and at which operator it stopped.",
    ),
    "IRS481": CodeDoc("The run ended before anything was recorded", "The model could not be loaded, or its process was ended."),
    "IRS482": CodeDoc(
        "Running a file needs --trust",
        "irscope reads files without executing anything in them; `record` hands them to PyTorch or ONNX Runtime, which run them. A .pt2 or "
        "TorchScript file can execute any code, an .onnx file can exhaust memory or reach faults of native code. "
        "If you know where the file comes from, say so with --trust.",
    ),
    "IRS450": CodeDoc(
        "--sort, --filter or --top does not fit",
        "They work on columns of the tables of a report, under the keys that --format csv shows. Example: "
        "--sort bytes --top 10 --filter 'dtype = f32 and name ~ \"layer1.*\"'. docs/cli.md has the grammar.",
    ),
    "IRS451": CodeDoc(
        "The report has no such table",
        "A script asked for a table by a title that the report does not have; the message lists its tables.",
    ),
    "IRS452": CodeDoc("pandas is not installed", "`Table.to_pandas()` makes a DataFrame, which needs it; `Table.to_dicts()` does without."),
    "IRS430": CodeDoc(
        "The picture cannot be drawn",
        "`--plot` writes .png, .svg or .pdf, and needs numbers over steps, sizes or names: `irscope sweep` over one symbol (two make a "
        "table only), or a pass with a curve, such as `liveness` once every size is a number.",
    ),
    "IRS431": CodeDoc(
        "matplotlib is not installed",
        "Pictures as .png and .pdf need it: `pip install irscope[plot]`. Those as .svg, tables and curves in the terminal do not.",
    ),
}
