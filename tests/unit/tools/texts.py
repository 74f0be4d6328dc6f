"""Small models that the tests of comparisons share."""

from __future__ import annotations

from irscope.frontends.base import LoadOptions
from irscope.ir.parser import parse_program
from irscope.ir.program import FORMAT_TRAITS
from irscope.passes.graph.transforms import Annotate
from irscope.passkit.manager import Manager
from irscope.passkit.settings import Settings
from irscope.session import Model

HEAD = """irscope 1
graph @main {
  input %x: f32[4,8]
  param %fc1.weight: f32[16,8]
  param %fc1.bias: f32[16]
  param %fc2.weight: f32[8,16]
"""

MLP = (
    HEAD
    + """  %hidden: f32[4,16] = nn.linear(%x, %fc1.weight, %fc1.bias) @fc1 !"aten::linear"
  %active: f32[4,16] = nn.relu(%hidden) !"aten::relu"
  %back: f32[4,8] = nn.linear(%active, %fc2.weight) @fc2 !"aten::linear"
  %y: f32[4,8] = math.add(%back, %x) !"aten::add"
  return %y
}
"""
)


def model(text: str, path: str = "", program_format: str = "", settings: Settings | None = None) -> Model:
    """A model as it is opened."""
    program = parse_program(text)
    manager = Manager(program, settings=settings)
    manager.apply(Annotate())
    program.path = path
    if program_format:
        program.format, program.traits = program_format, FORMAT_TRAITS[program_format]
    return Model(manager, (), LoadOptions())


def renamed(text: str) -> str:
    """The same model with other names for everything that nodes make."""
    for old, new in (("hidden", "val_1"), ("active", "val_2"), ("back", "val_3"), ("%y", "%out")):
        text = text.replace(old if old.startswith("%") else f"%{old}", new if new.startswith("%") else f"%{new}")
    return text
