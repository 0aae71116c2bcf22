"""The public names and their signatures are those of public_names.txt; each has a docstring whose example runs.

SHARDWAY_WRITE_GOLDEN=1 writes the file anew: read the diff, and docs/api_principles.md.
"""

from __future__ import annotations

import doctest
import inspect
import os
import re
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import shardway as sw
from docs.signatures import DECLARED, MADE_BY_OTHERS, signature_of
from tests.support.ranks import run_ranks

GOLDEN = Path(__file__).parent / "public_names.txt"
SECTION = re.compile(r"^(Args|Returns|Raises|Example|Attributes):$", re.MULTILINE)
FUNCTIONS = [name for name in sw.__all__ if inspect.isfunction(getattr(sw, name))]
CLASSES = [name for name in sw.__all__ if inspect.isclass(getattr(sw, name))]


OF_LINK = {"close", "explain", "plan", "publish", "rank", "role", "size", "subscribe"}
NOT_FOR_USERS = {"Load": {"check"}, "PreparedCall": {"refuse", "run_parts"}}


def signature(what: str, name: str, obj: object) -> str:
    parameters, returns = signature_of(None, what, f"shardway.{name}", obj, None, "", None)  # type: ignore[arg-type]
    return f"{name}{parameters or ''}" + (f" -> {returns}" if returns else "")


def members(name: str) -> Iterator[str]:
    """What a class has for users, besides what its bases have."""
    cls = getattr(sw, name)
    left_out = NOT_FOR_USERS.get(name, set()) | {"extra_repr"}
    for member in sorted(OF_LINK if name == "JobLink" else vars(cls)):
        value = inspect.getattr_static(cls, member)
        is_method = callable(value) or isinstance(value, (property, staticmethod))
        if is_method and not member.startswith("_") and member not in left_out:
            yield member


def lines() -> Iterator[str]:
    for name in sorted(sw.__all__):
        obj: Any = getattr(sw, name)
        if name in CLASSES:
            yield "class " + signature("class", name, obj)
            for member in members(name):
                yield "    " + member_signature(name, member)
        elif name in FUNCTIONS:
            yield signature("function", name, obj)
        else:
            yield f"{name}: {type(obj).__name__}"


def member_signature(name: str, member: str) -> str:
    value = inspect.getattr_static(getattr(sw, name), member)
    if isinstance(value, property) and inspect.isfunction(value.fget):
        return signature("method", f"{name}.{member}", value.fget).replace("()", "", 1)
    return signature("method", f"{name}.{member}", getattr(value, "__func__", value))


def docstring(name: str) -> str:
    stub = DECLARED.get(name)
    obj: Any = sw
    for part in name.split("."):
        obj = inspect.getattr_static(obj, part)
    return (stub.docstring if stub else inspect.getdoc(obj)) or ""


def sections(name: str) -> dict[str, str]:
    parts = SECTION.split(docstring(name))
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_names_and_signatures_are_those_of_the_list() -> None:
    text = "".join(f"{line}\n" for line in lines())
    if os.environ.get("SHARDWAY_WRITE_GOLDEN"):
        GOLDEN.write_text(text)
    assert text == GOLDEN.read_text()


def test_nothing_else_is_visible() -> None:
    visible = {name for name in dir(sw) if not name.startswith("_")} | {"__version__"}
    submodules = {"compat", "refit"}  # there once they are imported
    assert visible - submodules == set(sw.__all__)
    assert not [name for name in sw.__all__ if isinstance(getattr(sw, name), types.ModuleType)]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_says_what_it_takes_gives_and_raises(name: str) -> None:
    found = inspect.signature(getattr(sw, name))
    said = sections(name)
    arguments = re.findall(r"^    (\w+): ", said.get("Args", ""), re.MULTILINE)
    assert arguments == list(found.parameters)
    assert ("Returns" in said) == (found.return_annotation != "None")
    assert "Raises" in said or not found.parameters
    assert ">>>" in said["Example"]


@pytest.mark.parametrize("name", CLASSES)
def test_a_class_says_what_it_takes_and_its_members_what_they_are(name: str) -> None:
    if f"shardway.{name}" not in MADE_BY_OTHERS:
        takes = signature("class", name, getattr(sw, name)) not in (name, f"{name}()")
        said = sections(name)
        assert takes == ("Args" in said or "Attributes" in said)
        assert ">>>" in said["Example"]
    assert docstring(name).strip()
    assert [member for member in members(name) if not docstring(f"{name}.{member}").strip()] == []


def run_examples(rank: int, size: int, name: str, folder: Path) -> None:
    os.chdir(folder)
    examples = doctest.DocTestParser().get_doctest(docstring(name), {"sw": sw, "torch": torch}, name, None, None)
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    report: list[str] = []
    runner.run(examples, out=report.append)
    assert runner.failures == 0, "".join(report)


@pytest.mark.parametrize("name", [*FUNCTIONS, *CLASSES])
def test_examples_run(name: str, tmp_path: Path) -> None:
    """In a process without a group; what calls leave behind there ends with it."""
    run_ranks(1, run_examples, name, tmp_path, enter=lambda rank, size: None)
