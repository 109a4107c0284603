"""Errors a user can meet: each says where, what was found, the nearest right thing, and what to type next."""

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches

MOST_SHOWN = 10
"""Mistakes of one spec that are told at once: they fit on one screen."""


class NlqError(ValueError):
    """A mistake in what nlq was given; the command line prints it on one screen and exits with code 2.

    `hint` is the next thing to type or to change.
    """

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


@dataclass(frozen=True, order=True)
class Position:
    """A place in a spec file; `line` and `column` count from 1."""

    line: int
    column: int


@dataclass(frozen=True)
class Mistake:
    """One thing that is wrong with a spec. `path` is the dotted name of the setting ("optim.lr_max")."""

    path: str
    message: str
    position: Position | None = None
    hint: str = ""


class SpecError(NlqError):
    """All mistakes of one spec, together."""

    def __init__(self, mistakes: Iterable[Mistake], source: str = "spec") -> None:
        self.mistakes = tuple(sorted(dict.fromkeys(mistakes), key=lambda m: m.position or Position(0, 0)))
        self.source = source
        lines = [self._line(m) for m in self.mistakes[:MOST_SHOWN]]
        more = len(self.mistakes) - len(lines)
        super().__init__("\n".join(lines + ([f"… and {more} more"] if more else [])))

    def _line(self, mistake: Mistake) -> str:
        where = self.source
        if mistake.position:
            where += f":{mistake.position.line}:{mistake.position.column}"
        what = f"{where}: {mistake.path}: {mistake.message}" if mistake.path else f"{where}: {mistake.message}"
        return f"{what}\n  → {mistake.hint}" if mistake.hint else what


def nearest(name: str, known: Iterable[str]) -> str:
    """A phrase that names the closest known name, or lists a few: 'did you mean "width"?'"""
    names = sorted(known)
    close = get_close_matches(name, names, n=1, cutoff=0.6)
    if close:
        return f'did you mean "{close[0]}"?'
    return "known: " + ", ".join(names[:12]) + (", …" if len(names) > 12 else "")
