"""The tables of the page, each with the runs behind its cells."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from nlq.report import budgets, equivalents, evidence, judged, table1, why
from nlq.report._sheet import Sheet
from nlq.report.page.provenance import run_ids
from nlq.stats.controls import controls
from nlq.stats.evidence import Evidence, Finding
from nlq.stats.selection import GridPoint, Selection
from nlq.stats.source import Source


class Behind(NamedTuple):
    """Ids of the runs behind a row: the arm's own, and of both sides behind its differences."""

    own: tuple[str, ...]
    both: tuple[str, ...]


class Shown(NamedTuple):
    """A table of the page; `key` names its files and its place, `behind` has an entry for each row."""

    key: str
    sheet: Sheet
    behind: tuple[Behind, ...]


MEANS: Mapping[str, str] = {
    "Config": "The arm at its best point.",
    "Verdict": "What may be said of the arm beside the baseline; the reasons stand below.",
    "Val loss": "Mean over the seeds in nats a token, ± their standard deviation.",
    "δ, nats": "Mean of baseline minus arm, above 0 where the arm is lower; the interval holds for all arms together.",
    "ΔLL": "δ over the baseline's mean loss.",
    "ΔPPX": "1 − exp(−δ), the relative gain in perplexity.",
    "p": "Two-sided, adjusted for all arms together.",
    "n": "Seeds behind the difference; of the baseline, behind its loss.",
    "Budget": "Points of the grid × seeds that every point has.",
    "Optimum": "Whether the best point lies inside the grid, or at an edge of it: then the arm is not tuned.",
    "Best point": "The lowest mean loss over the tuning seeds, on the split that selects.",
    "Parabola lowest at": "The parabola in ln η through the best learning rate and its neighbours.",
    "Best of k": "Expected loss of the best of k points, drawn with replacement.",
    "Δ N.E. params": "Non-embedding parameters beside the baseline's.",
    "λ": "Weight decay.",
    "η_max": "Peak learning rate.",
    "η_min": "Learning rate after the decay.",
    "Equivalent N.E. params": "How many times the baseline's parameters reach the arm's loss.",
    "Tokens": "How many times the baseline's tokens reach the arm's loss.",
    "FLOPs": "How many times the baseline's FLOPs reach the arm's loss.",
    "Time": "How many times the baseline's training time reaches the arm's loss.",
}
"""What a column shows, by its header."""

COMPARED = frozenset(
    {
        "Verdict",
        "δ, nats",
        "ΔLL",
        "ΔPPX",
        "p",
        "n",
        "Δ N.E. params",
        "Found",
        "Equivalent N.E. params",
        "Tokens",
        "FLOPs",
        "Time",
    }
)
"""Columns in which the baseline's runs stand behind a number, too."""


def tables(source: Source, found: Evidence) -> tuple[Shown, ...]:
    """Every table of the page, in the order of what a reader asks."""
    selection = found.selection
    findings = {finding.point.arm: finding for finding in found.findings}
    first, table, every = table1.of(selection), judged.of(found), table1.of(selection, all_points=True)
    worth, tuned = equivalents.of(source, selection, found.sigma_nats), budgets.of(selection)
    both = tuple(_judged(selection, findings, row.shown.arm) for row in table.rows)
    points = replace(table1.sheet(every), title=f"Every point of the grid ({every.sweep})")
    whole = run_ids([selection.reference])  # a point that was not chosen is compared with the seeds that it shares
    return (
        Shown("table1-evidence", judged.sheet(table), both),
        Shown("table1", table1.sheet(first), tuple(_row(_shown(selection), row.run_ids) for row in first.rows)),
        Shown("evidence", evidence.sheet(evidence.of(found)), tuple(_of(selection, f) for f in found.findings)),
        *_whys(found),
        Shown("every-point", points, tuple(_row(whole, row.run_ids) for row in every.rows)),
        Shown("budgets", budgets.sheet(tuned), tuple(Behind(row.run_ids, row.run_ids) for row in tuned.rows)),
        Shown("equivalents", equivalents.sheet(worth), _worth(selection, [row.arm for row in worth.rows])),
    )


def _whys(found: Evidence) -> Iterator[Shown]:
    """One table an arm, numbered: a label may hold anything, and names of files may not."""
    for number, finding in enumerate(found.findings, 1):
        table = why.of(found, finding)
        yield Shown(f"why-{number}", why.sheet(table), (_of(found.selection, finding),) * len(table.rows))


def _judged(selection: Selection, findings: Mapping[str, Finding], arm: str) -> Behind:
    if arm in findings:
        return _of(selection, findings[arm])
    own = _shown(selection, selection.best[arm])
    return Behind(own, own)


def _of(selection: Selection, finding: Finding) -> Behind:
    """Behind a difference stand the seeds of the effect, on both sides; all of them where there is none."""
    seeds = finding.effect.seeds if finding.effect else None
    return Behind(_shown(selection, finding.point), run_ids([selection.reference, finding.point], seeds))


def _shown(selection: Selection, *points: GridPoint) -> tuple[str, ...]:
    """The runs behind the losses that tables show of some best points; of the baseline's where none is named."""
    return tuple(t.member.run.run_id for p in points or (selection.reference,) for t in selection.shown_traces(p))


def _row(base: tuple[str, ...], own: tuple[str, ...]) -> Behind:
    return Behind(own, own if own == base else (*base, *own))


def _worth(selection: Selection, arms: Iterable[str]) -> tuple[Behind, ...]:
    sizes: list[GridPoint] = controls(selection)
    points = (selection.best[arm] for arm in arms)
    return tuple(Behind(_shown(selection, p), _shown(selection, *sizes, p)) for p in points)
