"""Tests that compare with something that torch has only from some version on."""

from __future__ import annotations

import pytest
import torch

TORCH = tuple(int(part) for part in torch.__version__.split(".")[:2])


def needs_torch(major: int, minor: int, why: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif((major, minor) > TORCH, reason=f"torch {torch.__version__}: {why}")


def until_torch(major: int, minor: int, why: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif((major, minor) < TORCH, reason=f"torch {torch.__version__}: {why}")
