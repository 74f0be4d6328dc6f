"""The screens of the app.

To add a screen:

1. Write `tui/screens/NAME.py` with a class `NAMEScreen(ModelScreen)` (see `base.py`). It gives `NAME`, `FIRST` (the selector of the
   widget that has the focus first), `PANES` (titles of its own panes by the id of the widget), `ACTIONS` (an `Action` for each of its
   own keys; the pane of an action is the id of the widget that has the method `action_<name>`, or NAME for the screen itself), and
   `BINDINGS = bindings(NAME, ACTIONS)`. It yields its widgets in `panes()`, asks its questions in `asked()`, shows what is known
   in `show()`, and says what `y` and `e` take in `commands()`, `selected_text()` and `table()`.
2. Add one `ScreenRecord` to `SCREENS` in `registry.py`. Key, tab, palette and help come from it.

All logic belongs into a view model in `tui/models/NAME.py`, which knows nothing of Textual; the screen keeps it with
`session.keep(NAME, make)`. Questions go through `session.ask(key, answer, take, fail)`: `answer` runs in the worker's thread and may
call passes by name (`irscope.tui.analyses.result_of(manager, "liveness{model=ssa}")`), `take` and `fail` run on the UI's thread;
afterwards `show()` is called. What a pass returns is shown as it is; its module is imported where it runs, or for its types alone, so that
the first paint waits for no pass.
"""
