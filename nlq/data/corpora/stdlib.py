"""The running Python's own sources: about 12 million characters that every machine already has."""

import os
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from nlq.core.errors import NlqError
from nlq.core.spec import DataSpec

LEFT_OUT_FOLDERS = frozenset({"test", "tests", "idle_test", "site-packages", "dist-packages", "__pycache__"})
"""Tests (not installed everywhere) and packages that belong to the user, not to Python."""

LEFT_OUT_FILES = ("_sysconfigdata", "_sysconfig_vars", "sitecustomize.py", "usercustomize.py")
"""Beginnings of the names of files that are generated, or added, where Python is installed."""


def sources(spec: DataSpec) -> list[Path]:  # noqa: ARG001
    """The .py files, ordered by their path below the standard library. Raises NlqError when there are none."""
    folder = _folder()
    found = [file for file in _walk(folder) if file.name.endswith(".py") and not file.name.startswith(LEFT_OUT_FILES)]
    if not found:
        raise NlqError(
            f"data.corpus: this Python has no standard library sources at {folder}",
            "set data.corpus to text and data.path to a file or folder of your own",
        )
    return sorted(found, key=_name)


def documents(spec: DataSpec) -> Iterator[tuple[str, str]]:
    """Name (path below the standard library, with slashes) and text of each file."""
    for file in sources(spec):
        yield _name(file), file.read_bytes().decode("utf-8", errors="replace")


def _folder() -> Path:
    return Path(sysconfig.get_path("stdlib"))


def _name(file: Path) -> str:
    return file.relative_to(_folder()).as_posix()


def _walk(folder: Path) -> Iterator[Path]:
    for here, below, files in os.walk(folder):
        # config-3.11-… holds scripts that are written for this machine
        below[:] = [b for b in below if b not in LEFT_OUT_FOLDERS and not b.startswith("config-")]
        yield from (Path(here, file) for file in files)
