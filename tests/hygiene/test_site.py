"""The pages of docs/ as a site: each has its place in mkdocs.yml, and every link and anchor leads somewhere, here and on the site."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.hygiene.test_docs import PAGES
from tests.tables import every
from tests.tools.browser import browser, find_browser

yaml = pytest.importorskip("yaml")
ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
_FENCE = re.compile(r"^( *)(```+|~~~+).*?^\1\2[ \t]*$", re.M | re.S)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def test_every_page_has_its_place_in_the_site_once() -> None:
    site = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    listed = list(pages_of(site["nav"]))
    assert sorted(listed) == sorted(str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md"))
    assert [next(iter(section)) for section in site["nav"]] == ["Start", "How do I ...", "Concepts", "Reference", "Contributing"]


def pages_of(entry: object) -> Iterator[str]:
    """The pages that a part of `nav` lists."""
    if isinstance(entry, str):
        yield entry
    elif isinstance(entry, dict):
        for below in entry.values():
            yield from pages_of(below)
    elif isinstance(entry, list):
        for below in entry:
            yield from pages_of(below)


@cache
def anchors(page: Path) -> tuple[frozenset[str], frozenset[str]]:
    """The anchors of a page's headings: on a repository's site, and as the site generator makes them."""
    there: list[str] = []
    site: list[str] = []
    for heading in re.findall(r"^#{1,6} +(.+?) *#*$", _FENCE.sub("", page.read_text(encoding="utf-8")), re.M):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
        for found, slug in ((there, _slug(text)), (site, re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", text).strip().lower()))):
            found.append(slug if slug not in found else f"{slug}{'-' if found is there else '_'}{found.count(slug)}")
    return frozenset(there), frozenset(site)


def _slug(text: str) -> str:
    return re.sub(r"[^\w\- ]", "", text.strip().lower()).replace(" ", "-")


@every("page", PAGES, ids=lambda page: page.name)
def test_every_anchor_is_there(page: Path) -> None:
    wrong: list[str] = []
    for link in _LINK.findall(_FENCE.sub("", page.read_text(encoding="utf-8"))):
        name, _, anchor = link.partition("#")
        target = page.parent / name if name else page
        if link.startswith(("http:", "https:")) or not anchor or target.suffix != ".md":
            continue
        if not all(anchor in found for found in anchors(target.resolve())):
            wrong.append(link)
    assert not wrong


MOST_WORDS = 400
"""On a page that answers a question, outside of what is typed and printed."""


def test_a_page_answers_its_question_in_few_words() -> None:
    site = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    [questions] = [section["How do I ..."] for section in site["nav"] if "How do I ..." in section]
    words = {}
    for page in pages_of(questions):
        text = re.sub(r"^    .*$", "", _FENCE.sub("", (DOCS / page).read_text(encoding="utf-8")), flags=re.M)
        words[page] = len(re.findall(r"\S*\w\S*", text))
    assert not {page: count for page, count in words.items() if count > MOST_WORDS}


QUESTIONS = {
    "how much gpu memory does my model need": "memory", "out of memory error snapshot": "explain", "largest batch that fits": "memory",
    "how long can the context be": "llm", "training on 8 gpus fsdp": "simulate", "count flops": "cost", "torch.compile memory": "compile",
    "inference time": "speed", "quantise int4 weights": "parameters", "fail CI when memory grows": "check",
    "write my own pass": "add-a-pass", "will it fit on my gpu": "memory", "kv cache size": "llm", "throughput tokens per second": "llm",
    "deepspeed zero": "simulate", "onnx runtime memory": "memory-ort", "keyboard shortcuts": "tui", "how do I install it": "index",
    "fragmentation reserved vs allocated": "memory-allocator", "onnxruntime memory": "memory-ort", "nsys profile import": "runtime",
    "which layer uses most memory": "memory", "how much vram does llama 3 8b need": "llm", "lora finetuning memory": "training",
}  # fmt: skip
"""What a stranger types, and the page that answers it."""
_LINKS = "Array.from(document.querySelectorAll('.md-search-result__item a')).map(link => link.href.split('/').pop().split(/[#?]/)[0])"
_ASK = """(box => { box.focus(); box.value = %r; box.dispatchEvent(new Event('keyup', {bubbles: true})) })
(document.querySelector('.md-search__input'))"""


@pytest.mark.full
def test_the_search_of_the_site_as_files_finds_the_page_first(tmp_path: Path) -> None:
    pytest.importorskip("material", reason="the extra docs is not installed")
    if find_browser() is None:
        pytest.skip("no browser is installed")
    subprocess.run([sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(tmp_path)], cwd=ROOT, check=True)
    first = {}
    with browser() as page:
        page.open(tmp_path / "index.html")
        for question in QUESTIONS:
            for _ in range(100):  # the index is read in the background
                page.value(_ASK % question)
                time.sleep(0.2)
                if page.value(_LINKS):
                    break
            time.sleep(1)
            first[question] = page.value(_LINKS)[:1]
        assert not [url for url in page.troubles() if url.startswith("http")]
    assert first == {question: [f"{name}.html"] for question, name in QUESTIONS.items()}
