"""Pipeline text, both ways, and what its errors say."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import irscope
from irscope.errors import IrscopeError, PipelineError
from irscope.passkit.pipeline import parse_pipeline, pipeline_text
from irscope.passkit.registry import PassEntry, PassRegistry, default_registry
from tests.unit.passkit.helpers import Count

HERE = "tests.unit.passkit.helpers"
ENTRIES: Mapping[str, PassEntry] = {
    "count": PassEntry(f"{HERE}:Count", ""),
    "twice": PassEntry(f"{HERE}:Twice", ""),
    "drop-last": PassEntry(f"{HERE}:DropLast", ""),
    "fixpoint": PassEntry("irscope.passes.graph.transforms:Fixpoint", ""),
}


@pytest.fixture(scope="module")
def registry() -> PassRegistry:
    return PassRegistry(ENTRIES, {"both": "count,twice", "loop": "loop"}, {})


def test_options_are_typed_fields(registry: PassRegistry) -> None:
    (found,) = parse_pipeline('count{op=nn.conv scale=0.5 mode="odd one" names=a,"b,c" limit=3 deep}', registry)
    assert found == Count("nn.conv", 0.5, "odd one", ("a", "b,c"), 3, True)


def test_text_leaves_out_defaults(registry: PassRegistry) -> None:
    assert pipeline_text(parse_pipeline("count{deep=false limit=none},twice", registry)) == "count,twice"


def test_names_of_pipelines_expand(registry: PassRegistry) -> None:
    assert pipeline_text(parse_pipeline("both,count{limit=1}", registry)) == "count,twice,count{limit=1}"


def test_bodies_nest(registry: PassRegistry) -> None:
    text = "fixpoint{max=4}(drop-last,fixpoint(drop-last))"
    assert pipeline_text(parse_pipeline(text, registry)) == text


texts = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=12)


@pytest.mark.slow
@given(
    op=texts,
    scale=st.floats(allow_nan=False),
    names=st.lists(texts, min_size=0, max_size=3),
    limit=st.none() | st.integers(),
    deep=st.booleans(),
)
def test_every_pass_comes_back_from_its_text(op: str, scale: float, names: list[str], limit: int | None, deep: bool) -> None:
    original = Count(op=op, scale=scale, names=tuple(names), limit=limit, deep=deep)
    registry = PassRegistry(ENTRIES, {}, {})
    assert parse_pipeline(original.text, registry) == (original,)


@given(st.text(alphabet='count{}=()," :.py-_1 ', max_size=30))
def test_no_text_breaks_the_parser(text: str) -> None:
    registry = PassRegistry(ENTRIES, {}, {})
    with contextlib.suppress(IrscopeError):
        parse_pipeline(text, registry)


@pytest.mark.parametrize(
    ("text", "message", "column"),
    [
        ("cuont", "did you mean 'count'", 0),
        ("count,", "expected the name of a pass, found the end", 6),
        ("count{limit=x}", "must be an integer", 0),
        ("count{lmit=1}", "no option 'lmit'", 0),
        ("count{mode=fast}", "one of plain, odd one", 0),
        ("count{deep=maybe}", "true or false", 0),
        ("count{deep deep}", "given twice", 15),
        ("count{", "expected an option or '}'", 6),
        ("count}", "unexpected '}'", 5),
        ("count(twice)", "takes no passes", 0),
        ("twice,fixpoint", "needs passes in parentheses", 6),
        ("fixpoint(count)", "is an analysis", 0),
        ("both{a=1}", "takes no options", 0),
        ("loop", "contains itself", 0),
        ("a" + "(a" * 60 + ")" * 60, "nested too deeply", 100),
    ],
)
def test_errors_point_at_the_place(registry: PassRegistry, text: str, message: str, column: int) -> None:
    with pytest.raises(PipelineError, match=message) as caught:
        parse_pipeline(text, registry)
    lines = str(caught.value).splitlines()
    assert lines[-1].rstrip().endswith("^")
    if column < 100:
        assert lines[-1].index("^") - 2 == column


def test_a_script_is_found_by_file_and_name(tmp_path: Path, registry: PassRegistry) -> None:
    script = tmp_path / "my pass.py"
    script.write_text(
        "from irscope.api import analysis\n"
        "@analysis('widest')\n"
        "def Widest(graph, ctx, *, below: int = 3, label: str = 'x'):\n"
        "    return {'n': below}\n"
    )
    (found,) = parse_pipeline(f'"{script}":Widest{{below=7}}', registry)
    assert (found.name, found.text) == ("widest", f'"{script}":Widest{{below=7}}')
    assert parse_pipeline(found.text, registry) == (found,)
    (again,) = parse_pipeline(f'"{script}"{{below=7}}', registry)
    assert again == found


@pytest.mark.parametrize(
    ("source", "code", "message"),
    [
        ("1/0\n", "IRS609", "raised ZeroDivisionError"),
        ("def (\n", "IRS609", "raised SyntaxError"),
        ("x = 1\n", "IRS608", "no pass 'Mine'"),
        ("import nothing_of_that_name\n", "IRS609", "ModuleNotFoundError"),
    ],
)
def test_a_bad_script_is_one_clear_error(tmp_path: Path, registry: PassRegistry, source: str, code: str, message: str) -> None:
    script = tmp_path / "bad.py"
    script.write_text(source)
    with pytest.raises(IrscopeError, match=message) as caught:
        parse_pipeline(f"{script}:Mine", registry)
    assert caught.value.code == code


def test_the_table_of_passes_tells_the_truth() -> None:
    registry = default_registry()
    for name, entry in registry.entries.items():
        cls = registry.find(name)
        assert cls.name == name
        assert cls.summary() == entry.summary
    for text in registry.pipelines.values():
        assert parse_pipeline(text, registry)


def test_words_of_a_name_are_joined_either_way(registry: PassRegistry) -> None:
    """Scripts of yesterday and of tomorrow name the same pass; the text that comes back is spelled with `-`."""
    assert pipeline_text(parse_pipeline("drop_last,fixpoint(drop_last)", registry)) == "drop-last,fixpoint(drop-last)"
    own = default_registry()
    assert not [name for name in own.entries if "_" in name]
    assert pipeline_text(parse_pipeline("cuda_memory{model=eager},params{near_zero=0.5}", own)) == (
        "cuda-memory{model=eager},params{near-zero=0.5}"
    )
    assert [own.find(name).name for name in own.entries] == list(own.entries)
    with pytest.raises(PipelineError, match="did you mean 'cuda-memory'"):
        parse_pipeline("cuda_memry", own)


def test_results_are_found_under_either_spelling() -> None:
    results = irscope.run(irscope.load("samples/mlp.irs"), "cuda_memory,flops", device="h100")
    assert results["cuda_memory"] is results["cuda-memory"]
    assert list(results) == ["cuda-memory", "flops"]
    assert "cuda_memory" in results and "liveness" not in results
