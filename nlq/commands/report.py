"""`nlq report` and `nlq plot`: read the database, print tables, draw figures."""

import math
from pathlib import Path
from typing import NamedTuple

from rich.table import Table

from nlq.commands._console import console, print_json
from nlq.commands._page import page
from nlq.commands._points import points
from nlq.core.errors import NlqError
from nlq.plots import _make
from nlq.report import equivalents, evidence, published, render, surface, table1, why
from nlq.report._sheet import Sheet
from nlq.store.reader import Reader

SUFFIXES = {".md": "md", ".tex": "latex", ".csv": "csv", ".json": "json"}


class Asked(NamedTuple):
    """Which table, of which sweep, and what the user gives to it."""

    table1: bool
    evidence: bool
    why: str | None
    equivalents: bool
    published: bool
    html: Path | None
    all_points: bool
    sigma: float | None
    sweep: str | None
    floor: float | None = None
    surface: bool = False
    points: Path | None = None


def report(db: Path, asked: Asked, form: str | None, out: Path | None) -> None:
    """One table, to the terminal or as text in a format, or the page. NlqError unless exactly one is asked for."""
    _refuse_useless(asked)
    _refuse_unless_one(asked)
    if asked.html is not None:
        if form not in (None, "json") or out is not None:
            raise NlqError("--html writes its own files: --format and --out have nothing to choose", "leave them out")
        page(db, asked.html, asked.sweep, asked.sigma, as_json=form == "json")
        return
    deliver(_sheet(db, asked), form, out)


def _refuse_unless_one(asked: Asked) -> None:
    tables = {
        "--table1": asked.table1,
        "--evidence": asked.evidence,
        "--why": asked.why is not None,
        "--equivalents": asked.equivalents,
        "--surface": asked.surface,
        "--published": asked.published,
        "--html": asked.html is not None,
    }
    named = [name for name, wanted in tables.items() if wanted]
    if not named:
        raise NlqError(
            "say which table",
            "nlq report --table1; nlq report --evidence; nlq report --why ARM; nlq report --equivalents; "
            "nlq report --surface; nlq report --published; nlq report --html FOLDER",
        )
    if len(named) > 1:
        raise NlqError(f"only one of {', '.join(named)}", "one table a command; --html FOLDER writes all together")


def _refuse_useless(asked: Asked) -> None:
    """An option that changes nothing was meant for another table."""
    if asked.published and (asked.sweep is not None or asked.all_points):
        raise NlqError(
            "--published is the paper's own table: --sweep and --all have nothing to choose", "leave them out"
        )
    if asked.all_points and not asked.table1:
        raise NlqError("--all belongs to --table1: a verdict is about an arm's best point", "leave it out")
    if asked.points is not None and (not asked.surface or asked.sweep is not None):
        raise NlqError("--points belongs to --surface, in the place of a sweep", "nlq report --surface --points FILE")
    if asked.sigma is not None and (asked.table1 or asked.published or asked.surface):
        raise NlqError("--sigma belongs to --evidence, --why, --equivalents and --html", "leave it out")
    if asked.sigma is not None and not (asked.sigma > 0 and math.isfinite(asked.sigma)):
        raise NlqError(f"σ must be above 0, found {asked.sigma:g}", "--sigma 0.0018")
    if asked.floor is not None and not asked.equivalents:
        raise NlqError("--floor belongs to --equivalents", "leave it out")
    if asked.floor is not None and not (asked.floor >= 0 and math.isfinite(asked.floor)):
        raise NlqError(f"E is a loss of 0 nats or more, found {asked.floor:g}", "--floor 1.69")


def _sheet(db: Path, asked: Asked) -> Sheet:
    if asked.published:
        return published.sheet(published.read())
    if asked.points is not None:
        return surface.sheet(surface.of(points(asked.points), f"points of {asked.points.name}"))
    reader = Reader(db)
    if asked.surface:
        return surface.sheet(surface.read(reader, asked.sweep))
    if asked.table1:
        return table1.sheet(table1.read(reader, asked.sweep, asked.all_points))
    if asked.why is not None:
        return why.sheet(why.read(reader, asked.why, asked.sweep, asked.sigma))
    if asked.equivalents:
        return equivalents.sheet(equivalents.read(reader, asked.sweep, asked.sigma, asked.floor))
    return evidence.sheet(evidence.read(reader, asked.sweep, asked.sigma))


def plot(db: Path, name: str, sweep: str | None, out: Path | None, *, as_json: bool = False) -> None:
    """Draw one figure; beside the database in `figures/` unless `out` says where."""
    reader = Reader(db)
    path = out or Path("figures") / f"{reader.sweep(sweep).name}-{name}.png"
    made = _make.make(name, reader, sweep, path)
    if as_json:
        print_json({"figure": str(made)})
    else:
        print(made)


def list_figures(*, as_json: bool = False) -> None:
    """Every figure with one line."""
    if as_json:
        print_json([{"name": name, "title": title} for name, title in _make.titles().items()])
        return
    table = Table(title="nlq plot NAME", title_justify="left")
    table.add_column("name", no_wrap=True)
    table.add_column("what it shows", overflow="fold")
    for name, title in _make.titles().items():
        table.add_row(name, title)
    console().print(table)


def deliver(sheet: Sheet, form: str | None, out: Path | None) -> None:
    """A table to the terminal, as text in a format, or into a file whose suffix names the format."""
    if form is None and out is not None:
        form = SUFFIXES.get(out.suffix.lower())
        if form is None:
            raise NlqError(
                f"{out}: no table format has this suffix",
                f"--out {out.parent / out.stem}.md, .tex, .csv or .json, or --format",
            )
    if form is None and out is None:
        console().print(render.to_rich(sheet))
        return
    text = render.render(sheet, form or "md")
    if out is None:
        print(text, end="" if text.endswith("\n") else "\n")
        return
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        raise NlqError(
            f"{out}: cannot be written ({error.strerror})", "--out FILE, in a folder that you may write"
        ) from error
    print(out)
