"""A chart that Weights & Biases exported: "Step", then "RUN - METRIC" with its __MIN and __MAX for each run."""

from pathlib import Path

from nlq.core.imported import TRAIN, VAL, Losses
from nlq.importing.curve import Wanted
from nlq.importing.formats._table import column, header, losses, table, wrong

BETWEEN = " - "
EXTREMES = ("__MIN", "__MAX")
USUAL = {"step": "Step", VAL: "val/loss", TRAIN: "train/loss"}


def fits(path: Path) -> bool:
    """Whether a file or folder looks like this format."""
    return path.is_file() and any(BETWEEN in name for name in header(path)[1:])


def read(path: Path, wanted: Wanted) -> Losses:
    """The losses of one run of a file. Raises NlqError or SpecError."""
    found = table(path)
    names = [name for name in found.names if not name.endswith(EXTREMES)]
    metrics = {**USUAL, **{what: name for what, name in wanted.columns.items() if what != "run"}}
    run = wanted.columns.get("run") or _only_run(path, names, metrics[VAL])
    places = {}
    for what, metric in metrics.items():
        name = metric if what == "step" and metric in names else f"{run}{BETWEEN}{metric}"
        if name in names:
            places[what] = name
        elif what != TRAIN or TRAIN in wanted.columns:
            raise column(path, names, what, name)
    return losses(path, found, wanted, places)


def _only_run(path: Path, names: list[str], metric: str) -> str:
    """The run whose metric this is, where there is one."""
    runs = [name.removesuffix(BETWEEN + metric) for name in names if name.endswith(BETWEEN + metric)]
    if len(runs) > 1:
        raise wrong(path, 1, "", f"{len(runs)} runs: {', '.join(runs[:6])}", f"columns: {{run: {runs[0]}}}")
    return runs[0] if runs else "RUN"
