"""The build backend: scikit-build-core's, told which torch to compile for.

A wheel fits the torch that it was compiled with. So it is compiled with the torch of the environment that it is for,
which pip's build isolation hides from the build; no other is downloaded, and where there is none the build refuses.
"""

from __future__ import annotations

import importlib.machinery
import os
import re
import shutil
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from scikit_build_core import build as _cmake_build

KNOWN = "torch>=2.11,<2.16"  # cmake/torch.cmake has the same limits
DEFINE = "cmake.define.SHARDWAY_TORCH_DIR"
Settings = dict[str, Any] | None


def torch_of_target() -> Path | None:
    """The torch that this Python's environment has installed, whether or not the build may import it."""
    hidden = {sysconfig.get_path(kind) for kind in ("purelib", "platlib")}
    if "venv" in sysconfig.get_scheme_names():  # a Python of Debian's has another scheme by default
        hidden |= {sysconfig.get_path(kind, "venv") for kind in ("purelib", "platlib")}
    spec = importlib.machinery.PathFinder.find_spec("torch", [*sys.path, *sorted(hidden)])
    locations = spec.submodule_search_locations if spec else None
    return Path(next(iter(locations))) if locations else None


def minor_version(torch: Path) -> str:
    header = torch / "include/torch/headeronly/version.h"
    text = header.read_text() if header.exists() else ""
    numbers = re.findall(r"#define TORCH_VERSION_(?:MAJOR|MINOR) (\d+)", text)
    if len(numbers) != 2:
        sys.exit(f"shardway: {torch} holds no torch of at least 2.11: install {KNOWN}, then try again")
    return ".".join(numbers)


def chosen_torch(settings: Settings) -> Path:
    given = (settings or {}).get(DEFINE)
    if torch := Path(given) if given else torch_of_target():
        return torch
    sys.exit(
        f"shardway: it is compiled for the torch that is installed, and {sys.prefix} has none: "
        "pip install torch scikit-build-core cmake ninja, then pip install --no-build-isolation ."
    )


def check(settings: Settings) -> None:
    """Before anything is downloaded, compiled or written: what cannot work is said in one sentence."""
    minor_version(chosen_torch(settings))
    if not os.environ.get("CXX") and not any(shutil.which(name) for name in ("c++", "g++", "clang++")):
        sys.exit("shardway: there is no C++ compiler: apt-get install g++ (dnf install gcc-c++), or name one in CXX")


def with_torch(settings: Settings) -> dict[str, Any]:
    """The settings, with the torch to compile for, a folder that no other torch was compiled for in, and a file name
    that no other torch's wheel has."""
    check(settings)
    torch = chosen_torch(settings)
    Requirements.torch = torch
    minor = minor_version(torch)
    own = {
        "build-dir": f"build/wheel/torch-{minor}-{sys.implementation.cache_tag}",
        "wheel.build-tag": minor.replace(".", ""),
    }
    return {**own, **(settings or {}), DEFINE: str(torch)}


def get_requires_for_build_wheel(config_settings: Settings = None) -> list[str]:
    check(config_settings)
    return _cmake_build.get_requires_for_build_wheel(config_settings)


def get_requires_for_build_editable(config_settings: Settings = None) -> list[str]:
    check(config_settings)
    return _cmake_build.get_requires_for_build_editable(config_settings)


def prepare_metadata_for_build_wheel(metadata_directory: str, config_settings: Settings = None) -> str:
    return _cmake_build.prepare_metadata_for_build_wheel(metadata_directory, with_torch(config_settings))


def prepare_metadata_for_build_editable(metadata_directory: str, config_settings: Settings = None) -> str:
    return _cmake_build.prepare_metadata_for_build_editable(metadata_directory, with_torch(config_settings))


def build_wheel(wheel_directory: str, config_settings: Settings = None, metadata_directory: str | None = None) -> str:
    return _cmake_build.build_wheel(wheel_directory, with_torch(config_settings), metadata_directory)


def build_editable(
    wheel_directory: str, config_settings: Settings = None, metadata_directory: str | None = None
) -> str:
    return _cmake_build.build_editable(wheel_directory, with_torch(config_settings), metadata_directory)


get_requires_for_build_sdist = _cmake_build.get_requires_for_build_sdist
build_sdist = _cmake_build.build_sdist


class Requirements:
    """What the metadata require: a wheel the torch that it was compiled with, an sdist any that it can be."""

    torch: Path | None = None  # no wheel is being made

    def dynamic_metadata(self, settings: Mapping[str, Any], project: Mapping[str, Any]) -> dict[str, Any]:
        return {"dependencies": [f"torch=={minor_version(self.torch)}.*" if self.torch else KNOWN]}

    def dynamic_wheel(self, settings: Mapping[str, Any]) -> dict[str, bool]:
        return {"dependencies": True}
