"""Losses by step on their way out of a file: every number is looked at, every mistake has its line."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from nlq.core.errors import MOST_SHOWN, Mistake, Position, SpecError
from nlq.core.imported import VAL, Losses

LONGEST_NUMBER = 64
LAST_STEP = 10**9
MOST_NATS = 10_000.0
"""No loss of a model that still learns is larger; a perplexity or a wrong column may be."""

_NUMBER = re.compile(r"[+-]?((\d+\.?\d*|\.\d+)(e[+-]?\d+)?|nan|inf(inity)?)", re.IGNORECASE | re.ASCII)


@dataclass(frozen=True)
class Wanted:
    """How a file is to be read: its columns by what they hold, steps between rows that have no step of their own,
    and the step from which losses may be lost (None where the run did not diverge)."""

    columns: Mapping[str, str]
    every: int
    diverged: int | None


@dataclass(frozen=True)
class Place:
    """Where a number stands: the line, the field (or column) in it, and what it is called there."""

    line: int
    column: int
    name: str


@dataclass
class Curve:
    """The losses of one file, gathered row by row. Raises SpecError as soon as a screen is full of mistakes."""

    path: Path
    wanted: Wanted
    losses: dict[str, dict[int, float]] = field(default_factory=dict)
    mistakes: list[Mistake] = field(default_factory=list)

    def add(self, split: str, step: int, text: str, place: Place) -> None:
        """Take one loss as the file spells it."""
        value = self._number(text, place)
        curve = self.losses.setdefault(split, {})
        last = next(reversed(curve), -1)
        if step <= last:
            hint = "sort the file by step, and leave out what a resumed run repeats"
            self.wrong(place, f"step {step:,} is {'there twice' if step in curve else f'after step {last:,}'}", hint)
        elif value is not None:
            self._check(step, value, place)
            curve[step] = value

    def step(self, text: str, place: Place) -> int | None:
        """A step as the file spells it, or None (and a mistake)."""
        value = self._number(text, place)
        if value is not None and not (value.is_integer() and 0 <= value <= LAST_STEP):
            self.wrong(place, f"must be a whole step from 0 to {LAST_STEP:,}, found {text[:LONGEST_NUMBER]}")
            return None
        return None if value is None else int(value)

    def wrong(self, place: Place, message: str, hint: str = "") -> None:
        """Gather a mistake."""
        self.mistakes.append(Mistake(place.name, message, Position(place.line, place.column), hint))
        if len(self.mistakes) >= MOST_SHOWN:
            raise SpecError(self.mistakes, str(self.path))

    def checked(self, nothing: str) -> Losses:
        """All losses. Raises SpecError with the mistakes, or with `nothing` where there is no validation loss."""
        if not self.mistakes and not self.losses.get(VAL):
            self.mistakes.append(Mistake("", nothing))
        if self.mistakes:
            raise SpecError(self.mistakes, str(self.path))
        return self.losses

    def _number(self, text: str, place: Place) -> float | None:
        text = text.strip()
        if len(text) > LONGEST_NUMBER or not _NUMBER.fullmatch(text):
            shown = text if len(text) <= LONGEST_NUMBER else text[:LONGEST_NUMBER] + "…"
            self.wrong(place, f"must be a number, found {shown!r}")
            return None
        return float(text)

    def _check(self, step: int, value: float, place: Place) -> None:
        lost = self.wanted.diverged is not None and step >= self.wanted.diverged
        if not math.isfinite(value) and not lost:
            self.wrong(place, f"the loss of step {step:,} is {value}", f"where the run diverged: diverged: {step}")
        elif not lost and not 0 <= value <= MOST_NATS:
            self.wrong(place, f"{value:g} is no loss in nats a token", "name the right column: columns: {val: NAME}")
