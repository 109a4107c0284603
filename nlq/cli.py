"""The command line: parse, call one function, print. Whatever is slow to import is imported inside the command."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from nlq import __version__
from nlq.core.errors import NlqError

EXIT_BAD_INPUT = 2

app = typer.Typer(
    name="nlq",
    help="Is this language-model architecture really better? Trains every arm on the same batches, shows the evidence.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
data_app = typer.Typer(help="Corpora that have been prepared.", no_args_is_help=True)
app.add_typer(data_app, name="data")

Db = Annotated[Path, typer.Option("--db", envvar="NLQ_DB", help="The database of runs.")]
SweepName = Annotated[str | None, typer.Option("--sweep", help="Name of the sweep; the latest unless given.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Out = Annotated[Path | None, typer.Option("--out", help="Write to this file; its suffix chooses the format.")]
RUNS_DB = Path("runs.db")


def main() -> None:
    """Run the command line. A mistake in the input ends with one screen and exit code 2, a fault of nlq with 1."""
    debug = "--debug" in sys.argv[1:]
    try:
        app()
    except NlqError as error:
        if debug:
            raise
        _fail(error.message, error.hint, EXIT_BAD_INPUT)
    except BrokenPipeError:
        sys.exit(0)
    except Exception as error:
        if debug:
            raise
        _fail(f"{type(error).__name__}: {error}", "this is a fault of nlq; see where with --debug", 1)


def _fail(message: str, hint: str, code: int) -> None:
    sys.stderr.write(f"nlq: {message}\n")
    if hint:
        sys.stderr.write("".join(f"  → {line}\n" for line in hint.split("; ")))
    sys.exit(code)


def _version(asked: bool) -> None:
    if asked:
        print(f"nlq {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    pass


@app.command()
def sweep(
    spec: Annotated[Path, typer.Argument(help="The spec file.")],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="List the runs and what they cost; queue nothing.")
    ] = False,
    slots: Annotated[
        int | None, typer.Option("--slots", help="Runs at a time on the CPU; one a core, or one a GPU, unless given.")
    ] = None,
    runner: Annotated[str, typer.Option("--runner", help="How a run is started: local or inline.")] = "local",
    json: Annotated[bool, typer.Option("--json", help="With --dry-run: print JSON instead of a table.")] = False,
    db: Db = RUNS_DB,
) -> None:
    """Train what a spec asks for and is not trained yet."""
    from nlq.data.prepare import cache_folder
    from nlq.runners._slots import slots as find_slots

    places = find_slots(slots)
    if dry_run:
        from nlq.commands.dry_run import dry_run as look

        look(spec, cache_folder(), places, as_json=json)
        return
    from nlq.commands.sweep import sweep as train

    raise typer.Exit(train(spec, db, cache_folder(), places, runner))


@app.command()
def status(sweep: SweepName = None, json: Json = False, db: Db = RUNS_DB) -> None:
    """Show every run of a sweep and the state that it is in."""
    from nlq.commands.status import status as look

    look(db, sweep, as_json=json)


@app.command()
def show(
    run: Annotated[str, typer.Argument(help="The run's id, or enough of its start.")],
    json: Json = False,
    db: Db = RUNS_DB,
) -> None:
    """Show one run: spec, attempts, events, evaluations, and the end of its log."""
    from nlq.commands.status import show as look

    look(db, run, as_json=json)


@app.command()
def report(
    table1: Annotated[bool, typer.Option("--table1", help="The paper's Table 1, for a sweep of your own.")] = False,
    published: Annotated[
        bool, typer.Option("--published", help="The paper's own Table 1, recomputed from its printed losses.")
    ] = False,
    all_points: Annotated[bool, typer.Option("--all", help="Every point of the grid, not each arm's best.")] = False,
    sweep: SweepName = None,
    format: Annotated[  # noqa: A002
        str | None, typer.Option("--format", help="md, latex, csv or json; a table for the terminal unless given.")
    ] = None,
    out: Out = None,
    db: Db = RUNS_DB,
) -> None:
    """Print a table of results."""
    from nlq.commands.report import report_published, report_table1

    if table1 == published:
        raise NlqError("say which table", "nlq report --table1; nlq report --published")
    if published:
        report_published(format, out)
    else:
        report_table1(db, sweep, format, out, all_points=all_points)


@app.command()
def plot(
    name: Annotated[str | None, typer.Argument(help="The figure: see --list.")] = None,
    list_all: Annotated[bool, typer.Option("--list", help="List the figures with one line each.")] = False,
    sweep: SweepName = None,
    out: Out = None,
    db: Db = RUNS_DB,
) -> None:
    """Draw a figure as PNG, PDF or SVG, and print where it is."""
    from nlq.commands.report import list_figures
    from nlq.commands.report import plot as draw

    if list_all:
        list_figures()
    elif name is None:
        raise NlqError("say which figure", "nlq plot --list")
    else:
        draw(db, name, sweep, out)


@app.command()
def variants(
    name: Annotated[str | None, typer.Argument(help="One variant; all of them unless given.")] = None,
    counts: Annotated[
        bool, typer.Option("--counts", help="Count parameters at the paper's shape (takes a moment: imports PyTorch).")
    ] = False,
    json: Json = False,
) -> None:
    """List the named systems that model.variant may be."""
    from nlq.commands.variants import variants as look
    from nlq.models.variants import variants as known

    look([name] if name else list(known()), counts=counts, as_json=json)


@data_app.command("ls")
def data_ls(json: Json = False) -> None:
    """List the corpora that have been prepared, and where they lie."""
    from nlq.commands.data import data_ls as look
    from nlq.data.prepare import cache_folder

    look(cache_folder(), as_json=json)


@app.command()
def export(
    kind: Annotated[str, typer.Argument(help="What to export: steps or evals.")] = "evals",
    run: Annotated[str | None, typer.Option("--run", help="One run, by its id or enough of its start.")] = None,
    arm: Annotated[str | None, typer.Option("--arm", help="One arm of the sweep.")] = None,
    sweep: SweepName = None,
    format: Annotated[str | None, typer.Option("--format", help="csv, parquet or json.")] = None,  # noqa: A002
    out: Out = None,
    db: Db = RUNS_DB,
) -> None:
    """Export steps or evaluations of a run, an arm or a sweep as CSV, Parquet or JSON."""
    from nlq.commands.export import export as write

    write(db, sweep, arm, run, kind, format, out)


@app.command()
def doctor(json: Json = False, db: Db = RUNS_DB) -> None:
    """Say what was found on this machine, and what to do about each lack."""
    from nlq.commands.doctor import doctor as look
    from nlq.data.prepare import cache_folder

    raise typer.Exit(look(db, cache_folder(), as_json=json))


if __name__ == "__main__":
    main()
