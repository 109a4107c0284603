"""A table of text: a line of names, then a line a step."""

import csv
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from nlq.core.errors import Mistake, Position, SpecError, nearest
from nlq.core.imported import BATCH, TRAIN, VAL, Losses
from nlq.importing.curve import Curve, Place, Wanted
from nlq.importing.files import lines_of

MOST_COLUMNS = 10_000
LONGEST_HEADER = 1 << 20
SEPARATORS = ",;\t"
LOSSES = (VAL, TRAIN, BATCH)


class Table(NamedTuple):
    """The names of the columns, and the fields of every line below with its number."""

    names: list[str]
    rows: Iterator[tuple[int, list[str]]]


def header(path: Path) -> list[str]:
    """The names of a file's columns; empty where it has none, or cannot be read as a table."""
    try:
        with path.open("rb") as file:
            line = file.readline(LONGEST_HEADER).decode("utf-8-sig", errors="replace")
        return next(_parsed([line], line), [])
    except (OSError, csv.Error):
        return []


def table(path: Path) -> Table:
    """A file as a table. Raises SpecError where it is none."""
    lines = lines_of(path)
    first = lines[0]
    if len(first) > LONGEST_HEADER or sum(map(first.count, SEPARATORS)) > MOST_COLUMNS:
        raise wrong(path, 1, "", f"more than {MOST_COLUMNS:,} columns, this is no table of losses")
    rows = _numbered(path, lines)
    _, names = next(rows, (1, []))
    return Table([name.strip() for name in names], rows)


def losses(path: Path, found: Table, wanted: Wanted, places: Mapping[str, str]) -> Losses:
    """The losses of a table; `places` gives the column of each split, and of "step"."""
    names, rows = found
    at = {split: names.index(name) for split, name in places.items()}
    curve = Curve(path, wanted)
    for line, fields in rows:
        if len(fields) != len(names):
            curve.wrong(Place(line, len(fields), ""), f"{len(fields)} fields under {len(names)} names")
            continue
        _take(curve, line, fields, at, places)
    return curve.checked(f'no number in column "{places[VAL]}"')


def column(path: Path, names: list[str], what: str, name: str) -> SpecError:
    """The error of a column that is not there."""
    hint = f"columns: {{{what}: NAME}}; {nearest(name, names)}"
    return wrong(path, 1, "", f'no column "{name}" ({what})', hint)


def wrong(path: Path, line: int, name: str, message: str, hint: str = "") -> SpecError:
    """The error of one line."""
    return SpecError([Mistake(name, message, Position(line, 1), hint)], str(path))


def _take(curve: Curve, line: int, fields: list[str], at: Mapping[str, int], places: Mapping[str, str]) -> None:
    filled = [split for split in LOSSES if split in at and fields[at[split]].strip()]
    if not filled:
        return
    step = curve.step(fields[at["step"]], Place(line, at["step"] + 1, places["step"]))
    for split in filled if step is not None else ():
        curve.add(split, step or 0, fields[at[split]], Place(line, at[split] + 1, places[split]))


def _numbered(path: Path, lines: list[str]) -> Iterator[tuple[int, list[str]]]:
    """Lines that are not blank, parsed, with their numbers. Raises SpecError."""
    reader = _parsed(lines, lines[0])
    number = 1
    try:
        for number, fields in enumerate(reader, 1):
            if fields:
                yield number, fields
    except csv.Error as error:
        raise wrong(path, number + 1, "", f"not a table: {error}") from error


def _parsed(lines: list[str], first: str) -> Iterator[list[str]]:
    return csv.reader(lines, delimiter=max(SEPARATORS, key=first.count), strict=True)
