"""scripts/check-tree says nothing of a tree that keeps the rules, and finds each fault that is planted in one."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "check-tree"
MAP = """
shardway_room(low SOURCES low.cpp)
shardway_room(high
  SOURCES high.cpp
  USES low)
"""


@pytest.fixture
def tree(tmp_path):
    files = {
        "src/CMakeLists.txt": MAP,
        "src/low/low.h": "struct Low {\n  int x;\n};\n",
        "src/low/low.cpp": '#include "low/low.h"\n',
        "src/high/high.cpp": '#include "low/low.h"\nclass High : Low {\n};\nstruct Low::Inner {};\n',
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def findings(tree):
    done = subprocess.run([sys.executable, str(SCRIPT), str(tree)], capture_output=True, text=True)
    assert done.returncode == (1 if done.stdout else 0), done.stderr
    return done.stdout


def test_a_tree_that_keeps_the_rules(tree):
    assert findings(tree) == ""


@pytest.mark.parametrize("again", ["struct Low {\n};", "using Low = int;", "enum class Low : char { a };"])
def test_a_name_of_two_types(tree, again):
    (tree / "src/high/other.cpp").write_text(again + "\n")
    assert findings(tree) == "Low is defined in src/high/other.cpp, src/low/low.h: give one of them another name\n"


def test_a_crowded_folder(tree):
    for number in range(25):
        (tree / f"src/low/part{number}.cpp").write_text("")
    assert findings(tree) == "src/low has 27 sources, more than 25: make two rooms of it\n"


def test_an_include_against_the_arrows(tree):
    (tree / "src/low/low.cpp").write_text('#include "high/high.h"\n')
    assert findings(tree) == "src/low/low.cpp includes high/high.h, and may use only: low\n"


def test_a_folder_that_is_no_room(tree):
    (tree / "src/attic").mkdir()
    (tree / "src/attic/old.cpp").write_text("")
    assert findings(tree) == "src/attic/old.cpp is in no room of src/CMakeLists.txt\n"
