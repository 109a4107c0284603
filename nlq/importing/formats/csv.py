"""A table with one line a step: step, train_loss, val_loss, or columns of other names."""

from pathlib import Path

from nlq.core.imported import TRAIN, VAL, Losses
from nlq.importing.curve import Wanted
from nlq.importing.formats import wandb
from nlq.importing.formats._table import column, losses, table

SUFFIXES = (".csv", ".tsv")
USUAL = {"step": "step", VAL: "val_loss", TRAIN: "train_loss"}
OPTIONAL = (TRAIN,)


def fits(path: Path) -> bool:
    """Whether a file or folder looks like this format."""
    return path.is_file() and path.suffix.lower() in SUFFIXES and not wandb.fits(path)


def read(path: Path, wanted: Wanted) -> Losses:
    """The losses of a file. Raises NlqError or SpecError."""
    found = table(path)
    places = {**USUAL, **wanted.columns}
    if "run" in wanted.columns:
        raise column(path, found.names, "run", wanted.columns["run"])
    for what, name in dict(places).items():
        if name not in found.names and what in OPTIONAL and what not in wanted.columns:
            del places[what]
        elif name not in found.names:
            raise column(path, found.names, what, name)
    return losses(path, found, wanted, places)
