"""The Passes screen: a pipeline with times, what each step changed, and a way to change the pipeline and run it again."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Container, Vertical, VerticalScroll
from textual.content import Content
from textual.widgets import Input, Label

from irscope.errors import IrscopeError
from irscope.passkit.base import Pass
from irscope.passkit.options import spelled
from irscope.report.table import Table
from irscope.tui.actions import Action, bindings
from irscope.tui.command import compare_eager_command
from irscope.tui.compiled import NOT_COMPILED, CompiledView, is_compiled, shared
from irscope.tui.passes.chooser import PICK_ACTIONS, PickDialog
from irscope.tui.passes.pipeline import PassForm, Pipeline, Step
from irscope.tui.passes.running import Outcome, Runner
from irscope.tui.screen import ModelScreen
from irscope.tui.session import NOW, Session
from irscope.tui.text import Symbols, text_of
from irscope.tui.widgets.dialogs import Window
from irscope.tui.widgets.paint import DetailPane
from irscope.tui.widgets.table import RowsPane, VirtualTable

# The window in which options of a pass are filled in.

PICK_PANES = {"pick": "While choosing a pass", "form": "While filling in options"}
FORM_ACTIONS: tuple[Action, ...] = (
    Action("form", "close", ("escape",), "Back", "Close the window; the options stay as they were."),
    Action("form", "next_field", ("down",), "Down", "Go to the next option."),
    Action("form", "previous_field", ("up",), "Up", "Go to the option before."),
)


class FormDialog(Window[Pass | None]):
    """One line for each option of a pass, checked at every key; enter takes them when they make sense."""

    PANE = "form"
    BINDINGS: ClassVar[list[BindingType]] = bindings("form", FORM_ACTIONS)

    def __init__(self, form: PassForm, symbols: Symbols) -> None:
        super().__init__()
        self.form = form
        self.symbols = symbols

    def compose(self) -> ComposeResult:
        with Vertical(id="window") as window:
            window.border_title = Content(f"{self.symbols.clean(self.form.cls.name)}, {self.form.kind}")
            window.border_subtitle = Content("enter takes these options, esc closes")
            yield Label(Content(self.symbols.clean(self.form.cls.summary())), id="about")
            with VerticalScroll(id="fields", can_focus=False):
                for field in self.form.fields:
                    default = "has to be given" if field.is_required else f"unless given: {field.default}"
                    yield Label(Content(f"{spelled(field.name)}   {field.what}"), classes="field")
                    yield Input(self.form.text(field.name), placeholder=default, compact=True, name=field.name)
            yield Label("", id="preview")

    def on_mount(self) -> None:
        self.query(Input).first().focus()
        self._check()

    def on_input_changed(self, message: Input.Changed) -> None:
        self.form.set(message.input.name or "", message.value)
        self._check()

    def on_input_submitted(self, message: Input.Submitted) -> None:
        if not self.form.problem:
            self.dismiss(self.form.made())

    def _check(self) -> None:
        problem = self.form.problem
        label = self.query_one("#preview", Label)
        label.set_class(bool(problem), "-wrong")
        label.update(Content(self.symbols.clean(problem or self.form.preview)))

    def action_next_field(self) -> None:
        self.focus_next(Input)

    def action_previous_field(self) -> None:
        self.focus_previous(Input)

    def action_close(self) -> None:
        self.dismiss(None)


# The passes screen: a pipeline with times, what each step changed, and a way to change the pipeline and run it again.


class PassesScreen(ModelScreen):
    """A pipeline over a copy of the model."""

    NAME = "passes"
    FIRST = "#steps"
    FILTER_HINT = "words of a kernel, its operators, lines or nodes; !word: must not"
    PANES: ClassVar[dict[str, str]] = {
        "passes": "On this screen",
        "steps": "Pipeline",
        "step_text": "Selected pass",
        "diff": "Graph before and after",
        "kernels": "Kernels",
        "nodes": "Nodes of eager",
        "kernel_text": "Selected kernel",
        **PICK_PANES,
    }
    ACTIONS: ClassVar[tuple[Action, ...]] = (
        Action("passes", "add", ("a",), "Add", "Add a pass after the selected one; a form asks for its options.", footer=True),
        Action("passes", "options", ("o",), "Options", "Change the options of the selected pass.", footer=True),
        Action("passes", "rerun", ("r",), "Run from here", "Run the selected pass and those after it again.", footer=True),
        Action("passes", "leave_out", ("x",), "Leave out", "Leave the selected pass out, or take it in again.", footer=True),
        Action("passes", "remove", ("delete",), "Remove", "Take the selected pass out of the pipeline."),
        Action("passes", "shift(-1)", ("K",), "Earlier", "Move the selected pass up."),
        Action("passes", "shift(1)", ("J",), "Later", "Move the selected pass down."),
        Action(
            "passes",
            "compiled",
            ("v",),
            "Compiler",
            "Show what torch.compile did, kernels beside the nodes of eager, or the pipeline again.",
            footer=True,
        ),
        *PICK_ACTIONS,
        *FORM_ACTIONS,
    )
    BINDINGS: ClassVar[list[BindingType]] = bindings("passes", ACTIONS)

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        made: Pipeline = session.keep(self.NAME, lambda: Pipeline(session.manager.registry, session.browse.source, session.symbols))
        self.pipeline = made
        self._asked = self._asked_compiled = ""
        self.runner: Runner = session.keep("passes.runner", lambda: Runner(session.manager))
        self.compiled: CompiledView | None = (
            session.keep("passes.compiled", lambda: CompiledView(session.symbols)) if is_compiled(session.program) else None
        )
        """View of torch.compile's work, where it compiled something."""
        self.shows_compiled = self.compiled is not None

    def panes(self) -> ComposeResult:
        if self.compiled is not None:
            with Vertical(id="compiled"):
                yield DetailPane(id="compiled_text")
                with Container(classes="panes"):
                    with RowsPane(classes="pane left", id="kernels_pane"):
                        yield VirtualTable(self.compiled.kernels, id="kernels")
                    with Vertical(classes="right"):
                        with RowsPane(classes="pane", id="nodes_pane"):
                            yield VirtualTable(self.compiled.nodes, id="nodes")
                        yield DetailPane(id="kernel_text", classes="pane")
        with Container(classes="panes", id="pipeline"):
            with Vertical(classes="pane left", id="steps_pane"):
                yield VirtualTable(self.pipeline.table, id="steps")
            with Vertical(classes="right"):
                yield DetailPane(id="step_text", classes="pane")
                yield DetailPane(id="diff", classes="pane")
        yield from self.prompts()

    def focus_first(self) -> None:
        self.query_one("#kernels" if self.shows_compiled else "#steps").focus()

    def asked(self) -> None:
        compiled, session = self.compiled, self.session
        if self.shows_compiled and compiled is not None:
            asked = f"passes.compiled.{session.context.device}.{dict(session.results.complete.env)}"
            if asked != self._asked_compiled:
                self._asked_compiled = asked
                session.ask(asked, lambda: shared(session), compiled.take, compiled.fail, urgency=NOW)
            return
        self._run_next()

    def _run_next(self) -> None:
        at = self.pipeline.next_to_run()
        if at is None:
            if self.runner.is_large:
                self.session.ask("passes.done", self.runner.put_away, lambda _: None, lambda error: None)
            return
        done = self.pipeline.done_before(at)
        step, run = self.pipeline.start(at)
        self._asked = f"passes.{run}"
        self.session.ask(
            self._asked,
            lambda: self.runner.run(done, step.subject),
            lambda outcome: self._took(step, run, outcome),
            lambda error: self._failed(step, run, error),
            urgency=NOW,
        )
        self.show()

    def _took(self, step: Step, run: int, outcome: Outcome) -> None:
        self.pipeline.take(step, run, outcome)
        self._run_next()

    def _failed(self, step: Step, run: int, error: IrscopeError) -> None:
        self.pipeline.fail(step, run, error)
        self._run_next()

    def show(self) -> None:
        self.query_one("#pipeline").display = not self.shows_compiled
        if self.compiled is not None:
            self.query_one("#compiled").display = self.shows_compiled
            self._show_compiled(self.compiled)
        self.query_one("#steps", VirtualTable).set_model(self.pipeline.table)
        self._show_step()

    def _show_compiled(self, compiled: CompiledView, *, top: bool = False) -> None:
        self.query_one("#compiled_text", DetailPane).show(compiled.head())
        self.query_one("#compiled").set_class(compiled.is_alone, "-alone")
        self.query_one("#kernels", VirtualTable).set_model(compiled.kernels)
        self.query_one("#nodes", VirtualTable).set_model(compiled.nodes)
        self.query_one("#kernel_text", DetailPane).show(compiled.detail(), top=top)
        self.title_of("kernels_pane", f"{len(compiled.kernels):,} kernels", progress=True)
        self.title_of("nodes_pane", f"{len(compiled.nodes):,} nodes of eager{self.symbols.glyphs.separator}those of the kernel are marked")
        self.title_of("kernel_text", "Selected kernel")

    def _show_step(self, *, top: bool = False) -> None:
        self.query_one("#step_text", DetailPane).show(self.pipeline.detail(), top=top)
        self.query_one("#diff", DetailPane).show(self.pipeline.diff_lines(), top=top)
        self.title_of("steps_pane", self.pipeline.title, progress=True)
        self.title_of("step_text", "Selected pass")
        self.title_of("diff", self.pipeline.diff_title())

    def show_progress(self) -> None:
        if self.shows_compiled and self.compiled is not None:
            self._show_compiled(self.compiled)
        self._show_step()

    def on_rows_view_selected(self, message: VirtualTable.Selected) -> None:
        if self.compiled is None or not self.shows_compiled:
            self._show_step(top=True)
            return
        if message.table.id == "kernels":
            self.compiled.follow_kernel()
            kernel = self.compiled.kernel
            row = None if kernel is None else self.browse.outline.row_of.get(kernel.node)
            if row is not None:
                # All screens have the kernel selected.
                self.browse.reveal(row)
                self.session.moved(self.NAME)
        self._show_compiled(self.compiled, top=True)

    def on_rows_view_opened(self, message: VirtualTable.Opened) -> None:
        """From a kernel to its nodes, and from a node to its kernels, one after the other."""
        if self.compiled is None or not self.shows_compiled:
            self.action_options()
        elif message.table.id == "kernels":
            self.query_one("#kernel_text" if self.compiled.is_alone else "#nodes").focus()
        elif self.compiled.follow_node():
            self.query_one("#kernels").focus()
        else:
            self.say("In which kernel this node is, is not known.")
        self.show()

    def commands(self) -> list[tuple[str, str]]:
        self.pipeline.source = replace(self.browse.source, settings=self.browse.bound_source.settings)
        if self.shows_compiled:
            return [("The same as text:", compare_eager_command(self.browse.complete_source))]
        return [("This pipeline:", self.pipeline.command())]

    @property
    def filter_text(self) -> str:
        return self.compiled.filter_text if self.shows_compiled and self.compiled is not None else ""

    def set_filter(self, text: str) -> str:
        return self.compiled.set_filter(text) if self.shows_compiled and self.compiled is not None else ""

    def selected_text(self) -> list[tuple[str, str]]:
        if self.shows_compiled and self.compiled is not None:
            kernel = self.compiled.kernel
            return [] if kernel is None else [("The kernel:", kernel.name)]
        step = self.pipeline.step
        if step is None:
            return []
        texts = [("The pass:", step.subject.text)]
        if step.outcome is not None and step.outcome.diff is not None:
            texts.append(("What it changed:", "\n".join(text_of(line) for line in self.pipeline.diff_lines())))
        return texts

    def table(self) -> Table | None:
        if self.shows_compiled and self.compiled is not None:
            return self.compiled.export()
        return self.pipeline.export()

    def show_row(self, row: int) -> None:
        self.open_node(row)

    def action_compiled(self) -> None:
        """Switch between the pipeline and what the compiler did."""
        if self.compiled is None:
            self.say(NOT_COMPILED)
            return
        self.shows_compiled = not self.shows_compiled
        self.asked()
        self.show()
        self.focus_first()

    def action_filter(self) -> None:
        """Filter the passes to add: nothing else in a pipeline can be filtered."""
        if self.shows_compiled:
            super().action_filter()
        else:
            self.action_add()

    def _is_aside(self) -> bool:
        """Return whether the pipeline that a key is about is not shown, and show it then, so that nothing is changed unseen."""
        if not self.shows_compiled:
            return False
        self.action_compiled()
        return True

    def action_add(self) -> None:
        self._is_aside()
        registry = self.session.manager.registry
        choices = [(name, entry.summary) for name, entry in sorted(registry.entries.items())]
        choices += [(name, text) for name, text in sorted(registry.pipelines.items())]
        choices += [(name, "from an installed package") for name in sorted(registry.plugins())]
        self.app.push_screen(PickDialog(choices, self.symbols), self._picked)

    def _picked(self, text: str | None) -> None:
        if text is None:
            return
        try:
            form = self.pipeline.form(text)
            if form is not None:
                self.app.push_screen(FormDialog(form, self.symbols), self._add_made)
                return
            self.pipeline.add(self.pipeline.parsed(text))
        except IrscopeError as error:
            self.say(str(error))
            return
        self._changed()

    def _add_made(self, made: Pass | None) -> None:
        if made is not None:
            self.pipeline.add([made])
            self._changed()

    def action_options(self) -> None:
        if self._is_aside():
            return
        form: PassForm | None = self.pipeline.edit_form()
        if form is None:
            self.say("This pass has no options.")
        else:
            self.app.push_screen(FormDialog(form, self.symbols), self._replace_made)

    def _replace_made(self, made: Pass | None) -> None:
        if made is not None:
            self.pipeline.replace(made)
            self._changed()

    def action_rerun(self) -> None:
        if self._is_aside():
            return
        self.pipeline.rerun_from(self.pipeline.selected)
        self._changed()

    def action_leave_out(self) -> None:
        if self._is_aside():
            return
        self.pipeline.toggle()
        self._changed()

    def action_remove(self) -> None:
        if self._is_aside():
            return
        self.pipeline.remove()
        self._changed()

    def action_shift(self, by: int) -> None:
        if self._is_aside():
            return
        if self.pipeline.move(by):
            self._changed()

    def _changed(self) -> None:
        """Note that the pipeline is another one: what runs is of no use, and what is behind the change runs again."""
        if not self.pipeline.is_running:
            self.session.queue.stop(self._asked)
        self._run_next()
        self.show()
