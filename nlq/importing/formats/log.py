"""What nanoGPT prints: "step 1000: train loss 4.5006, val loss 4.5038" and "iter 10: loss 4.2000, time …"."""

import re
from pathlib import Path

from nlq.core.imported import BATCH, TRAIN, VAL, Losses
from nlq.importing.curve import Curve, Place, Wanted
from nlq.importing.files import lines_of
from nlq.importing.formats import csv

LONGEST_LINE = 10_000
EVALUATION = re.compile(r"\bstep (\S{1,80}): train loss ([^\s,]{1,80}), val loss ([^\s,]{1,80})")
UPDATE = re.compile(r"\biter (\S{1,80}): loss ([^\s,]{1,80})")
NOTHING = 'no line such as "step 1000: train loss 4.5006, val loss 4.5038"'


def fits(path: Path) -> bool:
    """Whether a file or folder looks like this format."""
    return path.is_file() and path.suffix.lower() not in csv.SUFFIXES


def read(path: Path, wanted: Wanted) -> Losses:
    """The losses of a file; lines of other forms are no concern of ours. Raises NlqError or SpecError."""
    curve = Curve(path, wanted)
    for number, line in enumerate(lines_of(path), 1):
        if len(line) <= LONGEST_LINE:
            _line(curve, number, line)
    return curve.checked(NOTHING)


def _line(curve: Curve, number: int, line: str) -> None:
    for pattern, splits in ((EVALUATION, (TRAIN, VAL)), (UPDATE, (BATCH,))):
        found = pattern.search(line)
        step = found and curve.step(found[1], Place(number, found.start(1) + 1, "step"))
        for group, split in enumerate(splits, 2):
            if found and step is not None:
                place = Place(number, found.start(group) + 1, "loss" if split == BATCH else f"{split} loss")
                curve.add(split, step, found[group], place)
