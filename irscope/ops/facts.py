"""Facts that records state in plain data: parts in patterns, operands of products and attentions, control flow, quantized weights."""

from __future__ import annotations

import enum

from irscope.immutable import immutable


class OpRole(enum.Enum):
    """A part that operators play in patterns of several. Patterns ask for roles: what plays one is found wherever it is named."""

    __hash__ = object.__hash__  # asked for of every node, and an enum's own one is written in Python

    COPY = "copy"
    """The result has the elements of the first operand, in another place, layout or element type."""
    CONVERT = "convert"
    """Converts to an element type."""
    CONVERT_LIKE = "convert like"
    """Converts to the element type of another operand."""
    RETURNS_OPERAND = "returns operand"
    """PyTorch returns the operand itself, and no view of it, where there is nothing to do."""
    LAYS_OUT = "lays out"
    """Copies only to bring elements into another order in memory, where they do not lie so."""
    GENERATED = "generated"
    """A kernel that a compiler made of several operators: what could be fused is."""
    DROPOUT = "dropout"
    """Does nothing outside training."""
    RESHAPE = "reshape"
    """The same elements in the same order, under other sizes."""
    UNIT_STRIDES = "unit strides"
    """A view that gives axes of size 1 strides of its own, which an exporter may state otherwise."""
    TRANSPOSE = "transpose"
    """Changes the order of axes."""
    EXPAND = "expand"
    """Repeats what is there along axes, without a copy."""
    SPREAD = "spread"
    """Repeats what is there along axes, as a copy."""
    HANDS_ON_MASK = "hands on mask"
    """A mask stays what it is: its last axes stay as they are, and so does what is masked."""
    CONCATENATE = "concatenate"
    """Joins operands along an axis."""
    STACK = "stack"
    """Joins operands along a new axis."""
    WRITE_PART = "write part"
    """The first operand with another one written into a part of it."""
    LOOKUP = "lookup"
    """Rows of the first operand, chosen by the second."""
    ADD = "add"
    """Sum of two operands."""
    SUBTRACT = "subtract"
    """Difference of two operands."""
    MULTIPLY = "multiply"
    """Product of two operands, element by element."""
    DIVIDE = "divide"
    """Quotient of two operands."""
    ADD_PRODUCT = "add product"
    """A sum with the product of two further operands, element by element."""
    NEGATE = "negate"
    """Changes the sign."""
    POWER = "power"
    """Raises to a power."""
    ABSOLUTE = "absolute"
    """Drops the sign."""
    ROOT = "root"
    """Square root, or one over it."""
    EXPONENTIAL = "exponential"
    """e to the power of each element."""
    LIMIT = "limit"
    """Keeps elements within limits."""
    SELECT = "select"
    """One of two operands by element, as the first operand says."""
    FILL = "fill"
    """Replaces elements where a mask says so."""
    COMMUTES = "commutes"
    """Operands may be given in any order."""
    MOMENT = "moment"
    """Mean, variance or both: what a normalization begins with."""
    CENTRED_MOMENT = "centred moment"
    """The spread around the mean, together with the mean."""
    SOFTMAX = "softmax"
    """Makes weights of scores, as attention does."""
    FOLDABLE_NORM = "foldable norm"
    """With given statistics it folds into the weights of the product before it."""
    MATRIX_PRODUCT = "matrix product"
    """A matrix product as `@` writes it."""
    LINEAR_LAYER = "linear layer"
    """A matrix product with weights that are stored transposed."""
    PROJECTION = "projection"
    """A matrix product that may stand before a gate; kernels exist that go on with what is done to each result."""
    FILTERS = "filters"
    """Slides filters over windows, of integers in place of floats: a convolution to those who ask what a model is."""
    CODED_PRODUCT = "coded product"
    """Multiplies by a matrix that is stored as codes, which are no plain factor."""
    NAMED_OPERATION = "named operation"
    """Does to codes what its attribute `op` names, such as a softmax."""
    RECODES = "recodes"
    """The same elements as codes, or the other way: what a model is does not depend on it."""
    CONVOLUTION = "convolution"
    """Runs at the rate of convolutions."""
    UPSAMPLE = "upsample"
    """Enlarges images."""
    TRIANGLE = "triangle"
    """Makes or keeps a triangle of a matrix."""
    ORDER = "order"
    """Compares the order of operands."""
    EQUAL = "equal"
    """Compares operands for equality."""
    RANGE = "range"
    """Counts 0, 1, 2, ..."""
    RUNNING_SUM = "running sum"
    """Sums from the first element to each."""
    STATE_SCAN = "state scan"
    """Carries a state from step to step within one operator."""
    BEST = "best"
    """The largest of some scores, and where they are."""
    EXPERTS = "experts"
    """Computes with weights that scores have chosen."""
    ROUTE = "route"
    """Makes of places what goes where."""
    BOXES = "boxes"
    """Suppresses boxes, or pools what is in them."""
    OVER_FIRST = "over first"
    """Sums over the first axis of its weights, where its kind sums over the second."""
    LAYOUT_BY_DEVICE = "layout by device"
    """Lays out its result as the kernel of the device does."""


@immutable
class Factors:
    """The operands that a matrix product multiplies."""

    left: int = 0
    right: int = 1
    over_first: bool = False
    """True where products are summed over the first axis of the right factor, unless `trans_b` says otherwise; else over its second."""


@immutable
class FusedAttention:
    """Roles of the operands of an operator that does a whole attention."""

    query: int = 0
    key: int = 1
    mask: int | None = None
    is_causal: bool = False
    """True where later keys are hidden whatever the attributes say."""


class Control(enum.Enum):
    """The bodies that a node runs, and how often; the passes that walk a graph carry types, costs and memory through them."""

    BRANCH = "branch"
    """One of its regions, which take no arguments."""
    CALL = "call"
    """The function of the program that the attribute `callee` names, once."""
    LOOP = "loop"
    """Its region while a condition holds, up to a number of times; state goes from step to step."""
    SCAN = "scan"
    """Its region for each slice of operands, state goes from step to step."""
    MAP = "map"
    """Its region for each element of a list."""

    @property
    def repeats(self) -> bool:
        """Return whether the body may run more than once."""
        return self in (Control.LOOP, Control.SCAN, Control.MAP)

    @property
    def is_stepwise(self) -> bool:
        """Return whether types inside may be others at each step or call; those of a scan never are."""
        return self in (Control.CALL, Control.LOOP, Control.MAP)


class Packing(enum.Enum):
    """Layout of the codes of a quantized weight in its tensor."""

    PLAIN = "plain"
    """One element of the tensor each."""
    ROWS = "rows"
    """Attributes `n` and `k` are rows and columns; each row is cut into blocks of `block_size` codes of `bits` bits."""
    BLOCKS = "blocks"
    """Of the tensor's own shape, several codes of `bits` bits in a byte, blocks along `quantize_axis`."""


@immutable
class CodedOperand:
    """A weight that the operator takes as codes, shifted by zero points and multiplied by scales."""

    weight: int
    scale: int
    zero: int
    axis: int | None = None
    """The axis that several scales go along, 0 with `trans_b`; None: the attribute `axis` says it."""
    packing: Packing = Packing.PLAIN
