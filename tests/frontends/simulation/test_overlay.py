"""Files that a simulated program writes are laid over those that are there: Python's own functions see one file system."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.forked import python

pytestmark = [pytest.mark.torch, pytest.mark.skipif(sys.platform != "linux", reason="simulated on Linux")]

BEGIN = """
import glob, gzip, io, json, os, pathlib, shutil, sqlite3, tempfile
import numpy as np
from irscope.frontends.simulation.overlay import Overlay
overlay = Overlay()
overlay.install()
from os import listdir
def raises(kind, function, *args):
    try:
        function(*args)
    except kind as error:
        assert type(error) is kind, error
        return error.filename
    raise AssertionError(function)
"""
CASES = {
    "a file is written, added to, read and removed": """
        with open("new.txt", "w") as file:
            file.write("a")
            assert file.name == "new.txt"
        with open("new.txt", "a") as file:
            file.write("b")
        assert open("new.txt").read() == "ab" and os.stat("new.txt").st_size == 2 and pathlib.Path("new.txt").exists()
        assert raises(FileExistsError, open, "new.txt", "x") == "new.txt"
        os.remove("new.txt")
        assert raises(FileNotFoundError, open, "new.txt") == "new.txt"
        assert raises(FileNotFoundError, os.remove, "new.txt") == "new.txt"
        with type("Derived", (io.FileIO,), {})("new.bin", "wb") as file:
            assert file.write(b"1") == 1 and isinstance(file, io.FileIO) and file.name == "new.bin"
        assert isinstance(open("new.bin", "rb", 0), io.FileIO) and io.FileIO("new.bin").read() == b"1"
        """,
    "a file that was there is read, changed, removed and written anew": """
        assert open("old.txt").read() == "old"
        open("old.txt", "r+").write("OL")
        assert open("old.txt").read() == "OLd"
        os.remove("old.txt")
        assert not os.path.exists("old.txt") and "old.txt" not in listdir() and not glob.glob("*.txt")
        pathlib.Path("old.txt").write_text("third")
        assert [entry.name for entry in os.scandir(".") if entry.is_file()] == ["old.txt"]
        assert [(file.path, file.was_there) for file in overlay.written()] == [(os.path.abspath("old.txt"), True)]
        """,
    "files are named in open folders, emptied, and written by functions that libraries keep": """
        import numpy, sqlite3
        inner = os.open("folder", os.O_RDONLY)
        os.unlink("inner.txt", dir_fd=inner)
        os.close(os.open("new.txt", os.O_CREAT | os.O_WRONLY, dir_fd=inner))
        assert os.listdir(inner) == ["new.txt"] == os.listdir("folder") and os.stat("new.txt", dir_fd=inner).st_size == 0
        os.close(os.open("old.txt", os.O_WRONLY | os.O_TRUNC))
        assert os.path.getsize("old.txt") == 0
        numpy.savetxt("old.txt", [1.0])
        assert numpy.loadtxt("old.txt") == 1
        sqlite3.connect("file:new.db?mode=rwc", uri=True).execute("create table t(x)").connection.commit()
        assert os.path.exists("new.db")
        """,
    "folders are made, listed, walked, moved and removed": """
        os.makedirs("out/a/b")
        assert raises(FileExistsError, os.mkdir, "out/a") == "out/a"
        assert raises(FileNotFoundError, open, "no/x", "w") == "no/x"
        for name in ("1.bin", "a/2.bin", "a/b/3.bin"):
            open(f"out/{name}", "wb").write(b"1")
        assert sorted(glob.glob("out/**/*.bin", recursive=True)) == ["out/1.bin", "out/a/2.bin", "out/a/b/3.bin"]
        assert sorted(map(str, pathlib.Path("out").rglob("*.bin"))) == sorted(glob.glob("out/**/*.bin", recursive=True))
        assert raises(OSError, os.rmdir, "out/a") == "out/a"
        shutil.copytree("out", "copy")
        os.rename("out/a", "moved")
        assert not os.path.isdir("out/a") and os.path.isfile("moved/b/3.bin") and os.path.isfile("copy/a/b/3.bin")
        shutil.rmtree("copy")
        assert sorted(os.listdir()) == ["folder", "link", "moved", "old.txt", "out"]
        assert sum(len(names) for _, _, names in os.walk(".")) == 5
        """,
    "folders that were there lose and get files": """
        open("folder/new.txt", "w").close()
        assert sorted(listdir("folder")) == ["inner.txt", "new.txt"]
        os.rename("folder", "other")
        assert not os.path.exists("folder") and open("other/inner.txt").read() == "inner"
        os.mkdir("folder")
        assert os.listdir("folder") == []
        shutil.rmtree("other")
        shutil.rmtree("folder")
        assert not os.path.exists("folder") and not os.path.exists("other")
        """,
    "symbolic links are followed": """
        open("link/by-link.txt", "w").write("x")
        assert open("folder/by-link.txt").read() == "x" and sorted(os.listdir("link")) == ["by-link.txt", "inner.txt"]
        os.symlink("old.txt", "latest")
        assert open("latest").read() == "old" and os.path.islink("latest") and os.path.realpath("latest") == os.path.abspath("old.txt")
        os.remove("latest")
        assert os.path.exists("old.txt")
        """,
    "the working folder may be new": """
        os.makedirs("run/1")
        os.chdir("run/1")
        assert os.getcwd().endswith("/run/1")
        open("x", "w").close()
        os.chdir("../..")
        assert os.path.exists("run/1/x") and os.getcwd() == os.path.dirname(os.path.abspath("run"))
        """,
    "temporary files are where they are, and move to where they are meant": """
        with tempfile.TemporaryDirectory() as folder:
            open(f"{folder}/part", "w").write("x")
            assert not overlay.written()
            shutil.move(f"{folder}/part", "whole")
        with tempfile.NamedTemporaryFile(dir=".", delete=False) as file:
            file.write(b"y")
        os.replace(file.name, "other")
        assert open("whole").read() + open("other").read() == "xy"
        assert [os.path.basename(file.path) for file in overlay.written()] == ["other", "whole"]
        open(os.devnull, "w").write("z")
        """,
    "libraries write by the same functions": """
        with gzip.open("a.gz", "wb") as file:
            file.write(b"1")
        np.save("a.npy", np.ones(3))
        whole = np.memmap("a.bin", mode="w+", shape=10)
        whole[:] = 3
        whole.flush()
        assert np.load("a.npy").sum() == 3 and np.fromfile("a.bin", np.uint8).sum() == 30
        with sqlite3.connect("a.db") as base, sqlite3.connect(":memory:"):
            base.execute("create table t (a)")
        assert os.path.getsize("a.db")
        """,
    "zeros take no room, and are zeros": """
        content = bytes(1 << 22) + b"x" + bytes(1 << 20)
        with open("zeros", "wb") as file:
            file.write(content)
            file.write(b"end")
        with open("zeros", "rb") as file:
            assert file.read() == content + b"end"
        assert os.stat("zeros").st_blocks * 512 < 1 << 18
        with open("full", "wb+") as file:
            file.write(b"y" * (1 << 20))
            file.seek(0)
            file.write(bytes(1 << 19))
            file.seek(0)
            assert file.read() == bytes(1 << 19) + b"y" * (1 << 19)
        """,
    "processes that are forked see the same": """
        for name in ("first", "second"):
            child = os.fork()
            if not child:
                open(name, "w").write(name)
                os._exit(0)
            os.waitpid(child, 0)
            assert open(name).read() == name
        """,
    "afterwards files are as they were": """
        open("old.txt", "w").write("new")
        os.mkdir("run")
        os.chdir("run")
        overlay.close()
        overlay.remove()
        assert os.path.basename(os.getcwd()) != "run" and open("old.txt").read() == "old" and not os.path.exists("run")
        assert open is __import__("io").open and os.stat is __import__("posix").stat
        """,
}


# As the package in Rust, which opens its files by itself.
TOKENIZERS = """
import posix, sys, types
class Tokenizer:
    @staticmethod
    def from_file(path):
        return posix.read(posix.open(path, posix.O_RDONLY), 100)
    def save(self, path, pretty=True):
        posix.write(posix.open(path, posix.O_WRONLY | posix.O_CREAT), b"words")
for name, holds in (("tokenizers", {"Tokenizer": Tokenizer}), ("tokenizers.models", {"Model": type("Model", (), {})})):
    module = sys.modules[name] = types.ModuleType(name)
    module.__spec__ = importlib.machinery.ModuleSpec(name, None)
    vars(module).update(holds)
"""


def test_tokenizers_are_saved_into_folders_that_vanish(tmp_path: Path) -> None:
    text = "import importlib.machinery\n" + TOKENIZERS + BEGIN
    text += "path = 'out/checkpoint-1/tokenizer.json'\nos.makedirs('out/checkpoint-1')\nTokenizer().save(path)\n"
    text += "assert Tokenizer.from_file(path) == b'words' and os.listdir('out/checkpoint-1') == ['tokenizer.json']\n"
    done = python(text, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("case", CASES)
def test_what_is_written_is_seen_by_who_wrote_it_alone(tmp_path: Path, case: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("folder")
    files = {"old.txt": "old", "folder/inner.txt": "inner"}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    program = BEGIN + "\n".join(line.removeprefix("        ") for line in CASES[case].splitlines())
    done = python(program, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert {str(path.relative_to(tmp_path)): path.read_text() for path in tmp_path.rglob("*") if path.is_file()} == files
