"""Pages, helps, texts of codes and messages keep to plain technical English: subject first, an actor for each verb, terms of the field.

The patterns are turns of phrase that readers had to decode. Each has a sentence that it must refuse, as it once stood here.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tables import every

ROOT = Path(__file__).parents[2]
PAGES = (
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *(page for page in sorted((ROOT / "docs").rglob("*.md")) if page.name != "api.md"),
    ROOT / "irscope" / "codes.json",
    ROOT / "irscope" / "cli" / "helptext.json",
)
SOURCES = tuple(path for folder in ("irscope", "frontends", "passes", "tui") for path in sorted((ROOT / folder).rglob("*.py")))

DIALECT = {
    "the subject comes first: 'The report lists ...'": r"\b(?:Told|Counted|Shown|Said|Meant) (?:is|are)\b",
    "'If there are too many'": r"\bWhere (?:that|they|these|those) are too\b",
    "'the least recently used'": r"\bnot used for (?:the )?longest\b",
    "'needs'": r"\bwants\b(?! to\b)",
    "'examined', 'checked', 'read' or 'handled separately'": r"\b(?:is|are|be|was|were) looked at\b",
    "'differ from'": r"\b(?:is|are|were) others than\b",
    "'a GitHub workflow'": r"\b[Ii]n an? \w+ of [A-Z]\w+'s\b",
    "name the step and the amount": r"\basks? for what\b",
    "'settings:' or 'default:'": r"\btaken: \w",
    "'sizes up to 3,162 sampled'": r"\bnot all up to\b",
    "'progress and messages'": r"\bis talk\b",
    "who tells? 'irscope reports', 'the table shows'": r"\b(?:is|are|be|was|were) told\b",
    "'again'": r"\banew\b",
    "'irscope answers with'": r"\bare each answered\b",
    "'surely' belongs before a verb; 'guaranteed'": r"\bfor sure\b",
    "'requested'": r"\b(?:as|bytes|memory|sizes) asked for\b",
    "'is not computed'": r"\bnobody computes\b",
    "'also takes', 'its temporary memory'": r"\btakes? besides\b",
    "'of a different model'": r"\bis of another\b",
}
"""What to write instead, by the pattern of what is refused."""
REFUSED = (
    "Told is what was in use at the peak",
    "Where that are too many, the answer is the number that was replayed",
    "above 512 MiB what was not used for longest goes",
    "A function that builds another model by these wants `--no-cache`",
    "Lengths below and above a window are looked at apart",
    "An update says which numbers are others than before",
    "In a workflow of GitHub's",
    "a step behind a longer prompt asks for what a later step asks for",
    "taken: torch=2.13",
    "not all up to 3,162 tried",
    "stdout is data, stderr is talk.",
    "a script without a function and a folder with several models are each answered with what to type",
    "the errors on them are told",
    "each captured anew",
    "as modelled, and for sure",
    "sizes as asked for, no temporary memory of kernels",
    "all elements of masks that nobody computes hold here",
    "what its kernel takes besides counts as nothing",
    "this recording is of another model",
)
_PATTERN = re.compile("|".join(f"(?:{pattern})" for pattern in DIALECT.values()))


@pytest.mark.parametrize("sentence", REFUSED)
def test_sentences_that_readers_had_to_decode_are_refused(sentence: str) -> None:
    assert _PATTERN.search(sentence)


@pytest.mark.parametrize("pattern", DIALECT.values())
def test_every_pattern_refuses_a_sentence(pattern: str) -> None:
    assert any(re.search(pattern, sentence) for sentence in REFUSED)


@every("page", PAGES, ids=lambda page: page.name)
def test_pages_are_plain_english(page: Path) -> None:
    lines = page.read_text(encoding="utf-8").splitlines()
    assert not [f"{page.name}:{number}: {match[0]!r}" for number, line in enumerate(lines, 1) if (match := _PATTERN.search(line))]


def messages(path: Path) -> Iterator[tuple[int, str]]:
    """The texts of a module that a program may print: its strings without docstrings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    described = {
        id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)
    }  # docstrings of modules, classes, functions and variables
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in described:
            yield node.lineno, node.value


@pytest.mark.slow
def test_messages_are_plain_english() -> None:
    assert not [
        f"{path.relative_to(ROOT)}:{line}: {match[0]!r} in {text!r}"
        for path in SOURCES
        for line, text in messages(path)
        if (match := _PATTERN.search(text))
    ]


VAGUE_NAMES, MOST_VAGUE = {"one", "found", "told"}, 2_700
"""Names that say nothing of what they hold, and how often the product still binds them; the number may only fall."""
QUESTIONS, MOST_QUESTIONS = re.compile(r"(?:What|Whether|How|Where|Who|When|Which|Why|Of|By|As|Within)\b"), 9
"""Docstrings of functions and classes begin with a verb or a noun; how many begin with a question word or "Of" may only fall."""


@pytest.mark.slow
def test_names_and_docstrings_say_what_a_thing_is() -> None:
    nodes = [node for path in SOURCES for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))]
    bound = [node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]
    bound += [node.arg for node in nodes if isinstance(node, ast.arg)]
    assert sum(name in VAGUE_NAMES for name in bound) <= MOST_VAGUE
    described = [node for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)]
    asking = [node.name for node in described if QUESTIONS.match(ast.get_docstring(node) or "")]
    assert len(asking) <= MOST_QUESTIONS, asking


MOST_WORDS, MOST_OF_CHANGELOG = 40_000, 700
"""Of all pages of docs/, generated ones too, and of the changelog. A page that grows makes another one shorter."""


def test_pages_do_not_grow() -> None:
    words = {page.name: len(page.read_text(encoding="utf-8").split()) for page in sorted((ROOT / "docs").glob("*.md"))}
    assert sum(words.values()) <= MOST_WORDS, sorted(words.items(), key=lambda item: -item[1])[:10]
    assert len((ROOT / "CHANGELOG.md").read_text(encoding="utf-8").split()) <= MOST_OF_CHANGELOG
