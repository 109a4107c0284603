"""The command line: parse, call one function, print. Whatever is slow to import is imported inside the command."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from nlq import __version__
from nlq.commands import _bench, _db_group, _evidence, _import
from nlq.commands._options import (
    RUNS_DB,
    Arms,
    Db,
    Format,
    Gpus,
    Ids,
    Json,
    Notify,
    Out,
    PerDevice,
    Runner,
    Slots,
    SlotsOrAuto,
    StallTimeout,
    States,
    Strict,
    SweepName,
)
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
app.add_typer(_db_group.app, name="db")


def main() -> None:
    """Run the command line. A mistake in the input ends with one screen and exit code 2, a fault of nlq with 1."""
    debug = "--debug" in sys.argv[1:]
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # what a locale has no sign for ends no command
    try:
        app()
    except NlqError as error:
        if debug:
            raise
        _fail(error.message, error.hint, EXIT_BAD_INPUT)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # Python flushes once more at its end
        sys.exit(0)
    except Exception as error:
        if debug:
            raise
        _fail(*_unforeseen(error))


def _unforeseen(error: Exception) -> tuple[str, str, int]:
    """What SQLite says of a file is about the file; the rest is a fault of nlq."""
    import sqlite3

    if isinstance(error, sqlite3.DatabaseError) and not isinstance(error, sqlite3.IntegrityError):
        from nlq.store.database import explained

        known = explained(error, Path(os.environ.get("NLQ_DB", RUNS_DB)))
        if known is not None:
            return known.message, known.hint, EXIT_BAD_INPUT
    return f"{type(error).__name__}: {error}", "this is a fault of nlq; see where with --debug", 1


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
    detach: Annotated[
        bool, typer.Option("--detach", help="Queue, train in the background, and return at once.")
    ] = False,
    slots: SlotsOrAuto = None,
    gpus: Gpus = None,
    per_device: PerDevice = None,
    runner: Runner = "local",
    stall_timeout: StallTimeout = None,
    strict: Strict = False,
    notify: Notify = None,
    json: Annotated[bool, typer.Option("--json", help="Print the runs, or how the sweep ended, as JSON.")] = False,
    db: Db = RUNS_DB,
) -> None:
    """Train what a spec asks for and is not trained yet."""
    from nlq.commands.slots import slots_of_sweep
    from nlq.data.prepare import cache_folder

    places = slots_of_sweep(slots, gpus, per_device, spec, cache_folder())
    if dry_run:
        from nlq.commands.dry_run import dry_run as look

        look(spec, cache_folder(), places, as_json=json)
        return
    from nlq.commands._detach import words
    from nlq.commands.sweep import sweep as train
    from nlq.commands.work import manner

    how = manner(stall_timeout, strict, notify, as_json=json, detached=detach)
    given: dict[str, object] = {
        "slots": slots and len(places),
        "gpus": gpus,
        "per-device": per_device,
        "runner": runner,
    }
    given |= {"stall-timeout": stall_timeout, "strict": strict, "notify": notify}
    raise typer.Exit(train(spec, db, cache_folder(), places, runner, how, words(given) if detach else None))


@app.command()
def work(
    sweep: Annotated[str | None, typer.Option("--sweep", help="Only runs of this sweep; of all unless given.")] = None,
    slots: Slots = None,
    gpus: Gpus = None,
    per_device: PerDevice = None,
    stay: Annotated[bool, typer.Option("--stay", help="Wait for more when nothing is left to train.")] = False,
    runner: Runner = "local",
    stall_timeout: StallTimeout = None,
    strict: Strict = False,
    notify: Notify = None,
    json: Annotated[bool, typer.Option("--json", help="Print how it ended as JSON.")] = False,
    db: Db = RUNS_DB,
) -> None:
    """Train what is queued: a further scheduler on the same database, or one that goes on after another."""
    from nlq.commands.work import manner
    from nlq.commands.work import work as train
    from nlq.data.prepare import cache_folder
    from nlq.runners._slots import slots as find_slots

    how = manner(stall_timeout, strict, notify, stay=stay, as_json=json)
    raise typer.Exit(train(db, cache_folder(), sweep, find_slots(slots, gpus, per_device), runner, how))


@app.command()
def cancel(
    runs: Ids = None,
    arm: Arms = None,
    state: States = None,
    sweep: SweepName = None,
    json: Json = False,
    db: Db = RUNS_DB,
) -> None:
    """Cancel runs that are queued or running; the processes of running ones are ended."""
    from nlq.commands.control import Choice
    from nlq.commands.control import cancel as change

    raise typer.Exit(change(db, Choice(runs or (), arm or (), state or (), sweep), as_json=json))


@app.command()
def retry(
    runs: Ids = None,
    arm: Arms = None,
    state: States = None,
    sweep: SweepName = None,
    json: Json = False,
    db: Db = RUNS_DB,
) -> None:
    """Queue runs again that failed or were cancelled; they go on from their last checkpoint."""
    from nlq.commands.control import Choice
    from nlq.commands.control import retry as change

    raise typer.Exit(change(db, Choice(runs or (), arm or (), state or (), sweep), as_json=json))


@app.command(context_settings={"ignore_unknown_options": True})
def priority(
    value: Annotated[int, typer.Argument(help="Higher is trained first; 0 unless set, and may be negative.")],
    runs: Ids = None,
    arm: Arms = None,
    state: States = None,
    sweep: SweepName = None,
    json: Json = False,
    db: Db = RUNS_DB,
) -> None:
    """Set which runs are trained first."""
    from nlq.commands.control import Choice
    from nlq.commands.control import priority as change

    raise typer.Exit(change(db, value, Choice(runs or (), arm or (), state or (), sweep), as_json=json))


@app.command()
def logs(
    run: Annotated[str, typer.Argument(help="The run's id, or enough of its start.")],
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on printing until the run ends.")] = False,
    lines: Annotated[
        int | None, typer.Option("--lines", "-n", min=0, help="Only so many lines from the end; all unless given.")
    ] = None,
    attempt: Annotated[
        int | None, typer.Option("--attempt", help="Which attempt, counted from 1; the last unless given.")
    ] = None,
    json: Json = False,
    db: Db = RUNS_DB,
) -> None:
    """Print what a run has printed."""
    from nlq.commands.logs import logs as look

    raise typer.Exit(look(db, run, attempt, lines, follow=follow, as_json=json))


@app.command()
def status(
    sweep: SweepName = None,
    watch: Annotated[bool, typer.Option("--watch", help="A live table, until all runs have ended or Ctrl-C.")] = False,
    json: Json = False,
    db: Db = RUNS_DB,
) -> None:
    """Show every run of a sweep and the state that it is in."""
    if watch and json:
        raise NlqError("--watch is for people, --json for programs", "nlq status --watch; nlq status --json")
    if watch:
        from nlq.commands.watch import watch as follow

        raise typer.Exit(follow(db, sweep))
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
    evidence: Annotated[
        bool, typer.Option("--evidence", help="Each arm with seeds, interval, budget of tuning, and verdict.")
    ] = False,
    why: Annotated[
        str | None, typer.Option("--why", metavar="ARM", help="How the verdict on one arm comes about, step by step.")
    ] = None,
    equivalents: Annotated[
        bool, typer.Option("--equivalents", help="What each arm's loss is worth in parameters, tokens, FLOPs, time.")
    ] = False,
    published: Annotated[
        bool, typer.Option("--published", help="The paper's own Table 1, recomputed from its printed losses.")
    ] = False,
    surface: Annotated[bool, typer.Option("--surface", help="The scaling surface L = E + A/N^α + B/D^β.")] = False,
    points: Annotated[
        Path | None, typer.Option("--points", help="CSV with N,D,loss for --surface; the sweep's runs unless given.")
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option(
            "--html", metavar="FOLDER", help="Everything as one page, with each table as LaTeX and CSV beside it."
        ),
    ] = None,
    all_points: Annotated[bool, typer.Option("--all", help="Every point of the grid, not each arm's best.")] = False,
    sigma: Annotated[
        float | None, typer.Option("--sigma", help="Calibrated sd of one run's loss, in nats: for z and for bounds.")
    ] = None,
    floor: Annotated[
        float | None,
        typer.Option("--floor", help="An irreducible loss E in nats: --equivalents fits ln(L - E) beside ln L."),
    ] = None,
    sweep: SweepName = None,
    format: Format = None,  # noqa: A002
    json: Json = False,
    out: Out = None,
    db: Db = RUNS_DB,
) -> None:
    """Print a table of results, or write the page with all of them."""
    from nlq.commands.report import Asked
    from nlq.commands.report import report as write

    asked = Asked(table1, evidence, why, equivalents, published, html, all_points, sigma, sweep, floor, surface, points)
    write(db, asked, "json" if json else format, out)


@app.command()
def plot(
    name: Annotated[str | None, typer.Argument(help="The figure: see --list.")] = None,
    list_all: Annotated[bool, typer.Option("--list", help="List the figures with one line each.")] = False,
    sweep: SweepName = None,
    json: Json = False,
    out: Out = None,
    db: Db = RUNS_DB,
) -> None:
    """Draw a figure as PNG, PDF or SVG, and print where it is."""
    from nlq.commands.report import list_figures
    from nlq.commands.report import plot as draw

    if list_all:
        list_figures(as_json=json)
    elif name is None:
        raise NlqError("say which figure", "nlq plot --list")
    else:
        draw(db, name, sweep, out, as_json=json)


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
    json: Json = False,
    out: Out = None,
    db: Db = RUNS_DB,
) -> None:
    """Export steps or evaluations of a run, an arm or a sweep as CSV, Parquet or JSON."""
    from nlq.commands.export import export as write

    write(db, sweep, arm, run, kind, "json" if json else format, out)


@app.command()
def doctor(json: Json = False, db: Db = RUNS_DB) -> None:
    """Say what was found on this machine, and what to do about each lack."""
    from nlq.commands.doctor import doctor as look
    from nlq.data.prepare import cache_folder

    raise typer.Exit(look(db, cache_folder(), as_json=json))


app.command("bench")(_bench.bench)
app.command("power")(_evidence.power)
app.command("noise")(_evidence.noise)
app.command("confirm")(_evidence.confirm)
app.command("import")(_import.import_runs)


if __name__ == "__main__":
    main()
