"""`nlq report` and `nlq plot`: read the database, print tables, draw figures."""

from pathlib import Path

from rich.table import Table

from nlq.commands._console import console, print_json
from nlq.core.errors import NlqError
from nlq.plots import _make
from nlq.report import published, render, table1
from nlq.report._sheet import Sheet
from nlq.store.reader import Reader

SUFFIXES = {".md": "md", ".tex": "latex", ".csv": "csv", ".json": "json"}


def report_table1(db: Path, sweep: str | None, form: str | None, out: Path | None, *, all_points: bool) -> None:
    """Table 1 of a sweep: to the terminal, or as text in a format."""
    deliver(table1.sheet(table1.read(Reader(db), sweep, all_points)), form, out)


def report_published(form: str | None, out: Path | None) -> None:
    """The paper's own Table 1, computed again from its printed losses."""
    deliver(published.sheet(published.read()), form, out)


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
                f"{out}: no table format has this suffix", f"--out {out.stem}.md, .tex, .csv or .json, or --format"
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
        raise NlqError(f"{out}: cannot be written ({error.strerror})", "--out FILE in a folder that can") from error
    print(out)
