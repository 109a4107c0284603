"""Everything that the page shows, as plain data: the tables' and the figures' own numbers, nothing computed twice."""

from collections.abc import Iterator
from typing import NamedTuple

from nlq.report import evidence
from nlq.report.page.bowls import Bowl, bowls
from nlq.report.page.curves import Line, lines, thinned
from nlq.report.page.provenance import Facts, Run, measured, runs
from nlq.report.page.tables import Shown, tables
from nlq.stats.evidence import Evidence, gather
from nlq.stats.origin import origin, remarks, where
from nlq.stats.printing import count
from nlq.stats.source import Source
from nlq.stats.verdict import Word

MOST_NAMED = 3
"""So many arms stand in the question by name."""


class Card(NamedTuple):
    """One arm's verdict in a few lines; `why` is the key of the table with its steps."""

    label: str
    word: str
    effects: tuple[str, ...]
    unconfirmed: str
    reasons: tuple[str, ...]
    needed: int | None
    badges: tuple[str, ...]
    why: str


class Page(NamedTuple):
    """The page of one sweep. `split` is the one shown, `arms` are (name, label) in the order of the sweep."""

    sweep: str
    question: str
    answer: str
    limits: tuple[str, ...]
    cards: tuple[Card, ...]
    tables: tuple[Shown, ...]
    arms: tuple[tuple[str, str], ...]
    baseline: str
    split: str
    lines: tuple[Line, ...]
    thinned: str
    bowls: tuple[Bowl, ...]
    measured: Facts
    runs: tuple[Run, ...]
    origin: str
    where: str


def read(reader: Source, sweep: str | None = None, sigma_nats: float | None = None) -> Page:
    """The page of a sweep (the latest when None). Raises NlqError as `stats.evidence.gather` does."""
    found = gather(reader, sweep, sigma_nats)
    selection = found.selection
    drawn = lines(reader, selection)
    return Page(
        sweep=selection.sweep.name,
        question=_question(found),
        answer=_answer(found),
        limits=tuple(remarks(selection)),
        cards=tuple(_cards(found)),
        tables=tables(reader, found),
        arms=tuple((arm, point.label) for arm, point in selection.best.items()),
        baseline=selection.sweep.baseline,
        split=selection.at.show_split,
        lines=drawn,
        thinned=thinned(drawn),
        bowls=bowls(selection),
        measured=measured(selection),
        runs=runs(selection),
        origin=origin(selection),
        where=where(selection),
    )


def _question(found: Evidence) -> str:
    base, others = found.selection.reference, [finding.point.label for finding in found.findings]
    if not others:
        return f"One arm only, {base.label}: there is nothing to compare it with."
    size = base.traces[0].member.run.non_embedding_params
    at = f" at {count(size)} non-embedding parameters" if size else ""
    which = f"one of {', '.join(others)}" if len(others) <= MOST_NAMED else f"one of {len(others)} arms"
    return f"Is {others[0] if len(others) == 1 else which} really better than {base.label}{at}?"


def _answer(found: Evidence) -> str:
    """The arms by verdict, good news and bad first; of nothing it says so."""
    if not found.findings:
        return "No verdict."
    said = {word: [f.point.label for f in found.findings if f.verdict.word == word] for word in Word}
    parts = [f"{word}: {', '.join(labels) or 'none'}" for word, labels in said.items() if labels or word == Word.BETTER]
    text = "; ".join(parts)
    return f"{text[0].upper()}{text[1:]}."


def _cards(found: Evidence) -> Iterator[Card]:
    rows = evidence.of(found).rows
    shown = {column.header: column for column in evidence.COLUMNS}
    for number, (row, finding) in enumerate(zip(rows, found.findings, strict=True), 1):
        texts = tuple(f"{header} {shown[header].cell(row).text}" for header in ("δ, nats", "ΔLL", "ΔPPX"))
        effects = texts if row.delta_nats is not None else ()
        chosen = evidence.unconfirmed(finding)
        yield Card(row.label, row.verdict, effects, chosen, row.reasons, row.seeds_needed, row.badges, f"why-{number}")
