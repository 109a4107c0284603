"""Points of a scaling surface out of a CSV."""

import csv
import math
from pathlib import Path

from nlq.core.errors import NlqError
from nlq.stats.scaled import Scaled

NAMES = ("N", "D", "loss")
EXAMPLE = "a first line N,D,loss, then one point a line: 84953856,29491200000,2.9441"


def points(path: Path) -> list[Scaled]:
    """Parameters, tokens and losses (nats a token) by the columns N, D and loss; others are passed over.

    Raises NlqError, with the line, where a column lacks or a value is no number above 0.
    """
    try:
        lines = list(csv.reader(path.read_text(encoding="utf-8-sig").splitlines()))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else "no CSV in UTF-8"
        raise NlqError(f"{path}: cannot be read ({why})", f"--points FILE: {EXAMPLE}") from error
    header = [name.strip().lower() for name in lines[0]] if lines else []
    lacking = [name for name in NAMES if name.lower() not in header]
    if lacking:
        raise NlqError(f"{path}: no column {', '.join(lacking)} in the first line", EXAMPLE)
    places = [header.index(name.lower()) for name in NAMES]
    return [_point(path, number, line, places) for number, line in enumerate(lines[1:], 2) if any(line)]


def _point(path: Path, number: int, line: list[str], places: list[int]) -> Scaled:
    try:
        point = Scaled(*(float(line[place]) for place in places))
    except (ValueError, IndexError) as error:
        raise NlqError(f"{path}:{number}: no numbers for N, D and loss: {','.join(line)}", EXAMPLE) from error
    if not all(value > 0 and math.isfinite(value) for value in point):
        raise NlqError(f"{path}:{number}: N, D and loss must be above 0: {','.join(line)}", EXAMPLE)
    return point
