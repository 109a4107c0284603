"""Validation loss against training FLOPs, each arm at its best point."""

import math

from matplotlib.figure import Figure

from nlq.core.errors import NlqError
from nlq.plots import _against
from nlq.plots._against import Against, Axis
from nlq.stats.cost import training_flops
from nlq.stats.selection import load
from nlq.stats.source import Source

TITLE = "validation loss against training FLOPs, each arm at its best point"

SUPERSCRIPTS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


def read(reader: Source, sweep: str | None = None) -> Against:
    """Read each arm's curve. Raises NlqError when none has evaluations and known FLOPs, or as `load` does."""
    selection = load(reader, sweep)
    empty = NlqError(
        f'sweep "{selection.sweep.name}": no arm has an evaluation and a known number of FLOPs a token',
        "nlq status; of imported runs give train.batch_tokens and the model's whole shape",
    )
    data = _against.gather(selection, training_flops, "no evaluation, or FLOPs not known", empty)
    return data._replace(footer=f"{data.footer}\nFLOPs: matrix products, forward and backward, attention uncut")


def draw(data: Against, figure: Figure) -> None:
    """One panel."""
    _against.draw(data, figure, flops_axis(_against.furthest(data)))


def flops_axis(most: float) -> Axis:
    """In units of a power of ten with an exponent that three divides."""
    exponent = 3 * int(math.log10(most) // 3) if most >= 1 else 0
    return Axis(10.0**exponent, f"Training FLOPs (10{str(exponent).translate(SUPERSCRIPTS)})")
