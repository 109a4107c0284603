"""From the name of a figure to a file."""

from collections.abc import Mapping
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

from nlq.core.errors import NlqError, nearest
from nlq.core.plugin import kinds, load
from nlq.stats.source import Source

DPI = 300

FORMATS: Mapping[str, Mapping[str, str | None]] = {
    ".png": {"Software": None},
    ".pdf": {"CreationDate": None, "ModDate": None, "Producer": None},
    ".svg": {"Date": None},
}
"""File suffixes, each with metadata that leaves dates and versions out, so that the same data gives the same bytes."""


def titles() -> dict[str, str]:
    """Every figure by its name on the command line ("training-dynamics"), with one line that says what it shows."""
    return {kind.replace("_", "-"): load("nlq.plots", kind).TITLE for kind in kinds("nlq.plots")}


def make(name: str, reader: Source, sweep: str | None, path: Path) -> Path:
    """Draw the figure `name` of a sweep (the latest when None) and save it. Returns the path.

    Raises NlqError for an unknown figure or suffix (before anything is read), for a sweep that does not exist or has
    nothing to draw, and for a folder that cannot be written.
    """
    if name not in titles():
        raise NlqError(f'no figure "{name}"; {nearest(name, titles())}', "nlq plot --list")
    module = load("nlq.plots", name.replace("-", "_"))
    _suffix(path)
    figure = Figure()
    module.draw(module.read(reader, sweep), figure)
    return save(figure, path)


def save(figure: Figure, path: Path) -> Path:
    """Write PNG, PDF or SVG by the suffix; the same figure gives the same bytes. Raises NlqError otherwise."""
    suffix = _suffix(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with mpl.rc_context({"svg.hashsalt": "nlq", "pdf.fonttype": 42}):
            figure.savefig(path, dpi=DPI, metadata=dict(FORMATS[suffix]), format=suffix[1:])
    except OSError as error:
        raise NlqError(
            f"cannot write {path}: {error.strerror or error}", "--out FILE, in a folder that you may write"
        ) from error
    return path


def _suffix(path: Path) -> str:
    suffix = path.suffix.lower()
    if suffix not in FORMATS:
        found = f'"{path.suffix}"' if path.suffix else "none"
        raise NlqError(
            f"a figure is saved as .png, .pdf or .svg; the suffix of {path} is {found}",
            f"--out {path.parent / path.stem}.png",
        )
    return suffix
