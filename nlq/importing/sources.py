"""What a run of an import names (a file, a glob, a folder) as losses, each file in its own format."""

from pathlib import Path
from typing import NamedTuple

from nlq.core import plugin
from nlq.core.errors import NlqError, nearest
from nlq.core.imported import Losses
from nlq.importing.curve import Wanted
from nlq.importing.files import digest
from nlq.importing.formats import tensors

FORMATS = "nlq.importing.formats"
MOST_FILES = 1_000


class Source(NamedTuple):
    """Where a run's losses stand, what they are, and the digest of what was read."""

    path: Path
    losses: Losses
    sha256: str


def found(folder: Path, name: str) -> list[Path]:
    """The file or folder of a name relative to `folder`, or those that a glob means, in order. Raises NlqError."""
    try:
        named = Path(name).expanduser()
        path = folder / named
        if path.exists():
            return [path]
        several = sorted((Path(named.anchor) if named.anchor else folder).glob(str(named.relative_to(named.anchor))))
    except (OSError, RuntimeError, ValueError) as error:
        raise NlqError(f"no path that can be followed: {name!r} ({error})") from error
    if not several:
        raise NlqError(f"{path}: no such file or folder", _beside(path))
    if len(several) > MOST_FILES:
        raise NlqError(f"{path}: more than {MOST_FILES:,} files", "name fewer")
    return several


def read(path: Path, kind: str | None, wanted: Wanted) -> Source:
    """The losses of one file or folder, in the format `kind` or in the one that it looks like."""
    kinds = [kind] if kind else plugin.kinds(FORMATS)
    modules = [plugin.load(FORMATS, one, "format") for one in kinds]
    chosen = next((module for module in modules if kind or module.fits(path)), None)
    if chosen is None:
        raise NlqError(f"{path}: neither a file nor a folder")
    parts = tensors.parts(path) if path.is_dir() else [path]
    return Source(path, chosen.read(path, wanted), digest(parts) if parts else "")


def _beside(path: Path) -> str:
    if not path.parent.is_dir():
        return f"{path.parent} is no folder"
    names = [one.name for one in path.parent.iterdir()]
    return nearest(path.name, names) if names else f"{path.parent} is empty"
