"""Files that are whole or not there, also after a power cut."""

import os
from collections.abc import Callable
from pathlib import Path


def put(path: Path, fill: Callable[[Path], object]) -> None:
    """Have `fill` write a file aside, bring it to the disk, and only then into place. Nothing is left when it fails."""
    aside = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        fill(aside)
        sync(aside)
        aside.replace(path)
        sync(path.parent)
    finally:
        aside.unlink(missing_ok=True)


def sync(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
