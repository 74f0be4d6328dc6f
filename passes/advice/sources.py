"""The sources that come with irscope, in the order in which they are asked."""

from __future__ import annotations

from irscope.passes.advice import running, stored
from irscope.passes.advice.finding import Source

BUILT_IN = (
    Source("memory", "Changes of the source that lower the peak.", running.peak_memory),
    Source("fusion", "Groups of nodes that one kernel could do.", running.fusion),
    Source("layout", "Nodes that only bring elements into another order.", running.copies),
    Source("casts", "Conversions of element types that go forth and back.", running.casts),
    Source("causal", "Products that a causal mask throws away.", running.masked_products),
    Source("dead-code", "Nodes that no output depends on.", running.dead_nodes),
    Source("half-width", "Floats of 32 bits as bf16.", running.half_width),
    Source("unused", "Weights that nothing reads.", stored.unused),
    Source("alignment", "Sizes that are no multiples of what matrix units take at once.", stored.alignment),
    Source("duplicates", "Weights that are there more than once.", stored.duplicates, needs_values=True),
    Source("precision", "Fewer bits for weights at a given signal to noise.", stored.precision, needs_values=True),
    Source("pruning", "Channels that do nothing, and sparse groups of four.", stored.pruning, needs_values=True),
)
