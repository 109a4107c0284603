"""The commands `nlq power`, `noise` and `confirm`. Like `cli.py` it imports whatever is slow inside a command."""

from typing import Annotated

import typer

from nlq.commands._options import RUNS_DB, Db, Format, Json, Out, SweepName


def confirm(
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="How many fresh seeds of each arm.")] = 5,
    sweep: SweepName = None,
    json: Json = False,
    db: Db = RUNS_DB,
) -> None:
    """Queue fresh seeds of each arm's chosen point; only on them does `nlq report --evidence` say better."""
    from nlq.commands.confirm import confirm as queue

    queue(db, sweep, seeds, as_json=json)


def power(
    sigma: Annotated[
        float | None,
        typer.Option("--sigma", help="sd of one run's loss over seeds, in nats; what nlq noise kept unless given."),
    ] = None,
    gap: Annotated[
        float | None, typer.Option("--gap", help="The gap in nats; a table of the usual numbers of seeds unless given.")
    ] = None,
    correlation: Annotated[
        float | None,
        typer.Option("--correlation", help="Of the arms' losses over seeds, where seeds are paired; unpaired if not."),
    ] = None,
    arms: Annotated[int, typer.Option("--arms", min=1, help="How many arms face the baseline (Bonferroni).")] = 1,
    power: Annotated[float, typer.Option("--power", help="Probability of finding the gap.")] = 0.8,
    format: Format = None,  # noqa: A002
    json: Json = False,
    out: Out = None,
    db: Db = RUNS_DB,
) -> None:
    """Say how many seeds a gap in loss needs, two-sided at 5 %."""
    from nlq.commands.noise import latest
    from nlq.commands.report import deliver
    from nlq.report import power as table

    kept = latest(db) if sigma is None else None
    found = table.read(kept.sigma_nats if kept else sigma or 0.0, gap, power, correlation, arms, kept)
    deliver(table.sheet(found), "json" if json else format, out)


def noise(
    arm: Annotated[str | None, typer.Option("--arm", help="Whose noise; the baseline's unless given.")] = None,
    sweep: SweepName = None,
    format: Format = None,  # noqa: A002
    json: Json = False,
    out: Out = None,
    db: Db = RUNS_DB,
) -> None:
    """Measure how much one run's loss varies over seeds, with five or more of them, and keep it in the database."""
    from nlq.commands.noise import noise as measure

    measure(db, sweep, arm, "json" if json else format, out)
