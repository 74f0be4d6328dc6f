"""Where machine code is kept: never where that of another version would be found."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from irscope import compiled


def test_code_is_kept_apart_by_all_that_makes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the module that is compiled, by the one that says how, and by the versions of the compiler and of Python."""
    pytest.importorskip("numba")
    monkeypatch.setenv("IRSCOPE_HOME", str(tmp_path / "home"))
    source, how = tmp_path / "loops.py", tmp_path / "how.py"
    source.write_text("first = 1\n", encoding="utf-8")
    shutil.copy(compiled.__file__, how)
    monkeypatch.setattr(compiled, "__file__", str(how))

    def folder() -> Path | None:
        compiled._folder.cache_clear()
        return compiled._folder(str(source))

    try:
        found = [folder()]
        assert found[0] is not None and found[0].is_dir() and folder() == found[0]
        source.write_text("first = 2\n", encoding="utf-8")
        found.append(folder())
        how.write_text(how.read_text(encoding="utf-8").replace("nogil=True", "nogil=False"), encoding="utf-8")
        found.append(folder())
        monkeypatch.setattr(compiled.sys, "version", "3.99 (another build)")
        found.append(folder())
        assert len(set(found)) == 4 and all(one is not None and one.name.startswith("loops-") for one in found)
    finally:
        compiled._folder.cache_clear()
