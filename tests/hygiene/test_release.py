"""What a release needs apart from code: one version everywhere, a citation, and a workflow that stores no password."""

from __future__ import annotations

import shutil
import zipfile
from pathlib import Path

import pytest

from tests.tools.release_check import EXTRAS, faults_of_texts, faults_of_wheel

yaml = pytest.importorskip("yaml")
ROOT = Path(__file__).parents[2]


def test_texts_name_the_version() -> None:
    assert list(faults_of_texts()) == []


def test_the_wheel_may_be_published(wheel: Path) -> None:
    assert list(faults_of_wheel(wheel)) == []


def test_a_wheel_with_tests_is_refused(wheel: Path, tmp_path: Path) -> None:
    changed = tmp_path / wheel.name
    shutil.copy(wheel, changed)
    with zipfile.ZipFile(changed, "a") as archive:
        archive.writestr("tests/data/large.json", "{}")
    assert list(faults_of_wheel(changed)) == ["the wheel has tests/data/large.json"]


def test_extras_that_are_documented_are_there(pyproject: dict[str, dict[str, dict[str, object]]]) -> None:
    assert set(pyproject["project"]["optional-dependencies"]) >= EXTRAS


def test_the_citation_has_what_the_format_requires() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert {"cff-version", "message", "title", "authors"} <= set(citation) and citation["type"] == "software"


def test_only_the_job_that_publishes_may_ask_for_an_identity() -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text(encoding="utf-8"))
    jobs = workflow["jobs"]
    assert workflow["permissions"] == {"contents": "read"}
    assert "permissions" not in jobs["build"] and jobs["publish"]["permissions"] == {"id-token": "write"}
    assert jobs["publish"]["needs"] == "build" and jobs["publish"]["environment"] == "pypi"
    assert "secrets." not in str(workflow) and "make release-check" in str(jobs["build"]["steps"])


@pytest.mark.parametrize("form", sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml")), ids=lambda form: form.name)
def test_forms_for_issues_are_sound(form: Path) -> None:
    found = yaml.safe_load(form.read_text(encoding="utf-8"))
    assert form.name == "config.yml" or ({"name", "description", "body"} <= set(found) and all("type" in one for one in found["body"]))
