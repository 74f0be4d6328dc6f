"""Small models that the tests of the UI share."""

from __future__ import annotations

from collections.abc import Mapping

from irscope.frontends.base import LoadOptions
from irscope.ir.parser import parse_program
from irscope.ir.program import Program
from irscope.passes.graph.transforms import Annotate
from irscope.passkit.manager import Manager
from irscope.session import Model
from irscope.tui.analyses import Analyses
from irscope.tui.browse.model import Browse
from irscope.tui.command import Source
from irscope.tui.text import UNICODE, Symbols

TWO_LAYERS = """irscope 1
graph @main {
  input %x: f32[4,64]
  param %w1: f32[256,64]
  param %b1: f32[256]
  param %w2: f32[64,256]
  %hidden: ?[*] = nn.linear(%x, %w1, %b1) @block/fc1 !"aten::linear" ("model.py":45 forward "h = self.fc1(x)")
  %active: ?[*] = nn.relu(%hidden) @block
  %back: ?[*] = nn.linear(%active, %w2) @block/fc2
  %y: ?[*] = math.add(%back, %x)
  return %y
}
"""
"""Rows: 0 block, 1 block/fc1, 2 linear, 3 relu, 4 block/fc2, 5 linear, 6 add."""

SYMBOLIC = TWO_LAYERS.replace("graph @main", "symbol batch [1,128]\ngraph @main").replace("f32[4,64]", "f32[batch,64]")

FOREIGN = """irscope 1
graph @main {
  input %x: f32[2,3]
  %a: ?[*] = nn.relu(%x) @known
  %b: ?[*] = acme.magic(%a) @strange
  %c: ?[*] = nn.relu(%b) @strange
  return %c
}
"""

NESTED = """irscope 1
graph @main {
  input %x: f32[2,3]
  input %c: bool[]
  %before: f32[2,3] = nn.relu(%x) @m
  %y: f32[2,3] = cf.if(%c) @m
  region then {
    %a: f32[2,3] = nn.relu(%x) @m/inner
    %a2: f32[2,3] = nn.relu(%a) @m/inner
    return %a2
  }
  region else {
    %b: f32[2,3] = nn.relu(%x) @m
    return %b
  }
  %after: f32[2,3] = nn.relu(%y)
  return %after
}
func @helper {
  input %q: f32[4]
  %r: f32[4] = nn.relu(%q) @deep/er
  return %r
}
"""
"""Rows: 0 m, 1 before, 2 if, 3 then, 4 inner, 5 a, 6 a2, 7 else, 8 b, 9 after, 10 helper, 11 deep, 12 er, 13 r."""

HOSTILE = (
    r"""irscope 1
graph @main {
  input %"in\u001b[31m": f32[2]
  %"evil\u001b\u202e[/bold] \u540d": f32[2] = "acme.\u0007bell"(%"in\u001b[31m") """
    r"""{"k\u001b"="v\u009b"} @"sc\u001bope/[red]x" !"s\r\n" ("\u001b.py":3 "fn\t" "st\u0000")
  return %"evil\u001b\u202e[/bold] \u540d"
}
"""
)

EMPTY = """irscope 1
graph @main {
  input %x: f32[2]
  return %x
}
"""


def program(text: str) -> Program:
    """The program of a text, its types inferred."""
    return model(text).program


def model(text: str, bind: Mapping[str, int] | None = None) -> Model:
    """A model as `irscope tui` opens it."""
    manager = Manager(parse_program(text))
    manager.apply(Annotate())
    manager.program.path = "some folder/two.irs"
    return Model(manager, (), LoadOptions(bind=bind or {}))


def browse(text: str, *, analysed: bool = True, symbols: Symbols = UNICODE) -> Browse:
    """The view model of a text, with all results unless told otherwise."""
    opened = model(text)
    made = Browse(opened.program, Source(opened.program.path, settings=opened.manager.settings), symbols)
    if analysed:
        for answer in Analyses(opened.manager, made.outline, made.matcher).parts().values():
            update = answer()
            if update is not None:
                update.apply(made.results)
    return made
