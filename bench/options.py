"""The command line of a bench."""

from __future__ import annotations

import argparse
from pathlib import Path

from bench.report import OUTPUT_FOLDER


def parser_of(
    bench: str, description: str | None, epilog: str, *, leaves_output: bool = True
) -> argparse.ArgumentParser:
    """A parser for the options of `python -m bench.<bench>`."""
    parser = argparse.ArgumentParser(
        prog=f"python -m bench.{bench}",
        description=description,
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    if leaves_output:
        parser.add_argument(
            "--output", type=Path, default=OUTPUT_FOLDER, help="folder for results (default: build/bench)"
        )
    return parser
