"""Options that several commands share. Nothing slow is imported here: `nlq --help` reads this file."""

from pathlib import Path
from typing import Annotated

import typer

RUNS_DB = Path("runs.db")

Db = Annotated[Path, typer.Option("--db", envvar="NLQ_DB", help="The database of runs.")]
SweepName = Annotated[str | None, typer.Option("--sweep", help="Name of the sweep; the latest unless given.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Out = Annotated[Path | None, typer.Option("--out", help="Write to this file; its suffix chooses the format.")]

Format = Annotated[
    str | None, typer.Option("--format", help="md, latex, csv or json; a table for the terminal unless given.")
]
SlotsOrAuto = Annotated[
    str | None,
    typer.Option(
        "--slots", help="Runs at a time on the CPU; one a core, or one a GPU, unless given. auto: tried out, the best."
    ),
]
Slots = Annotated[
    int | None, typer.Option("--slots", help="Runs at a time on the CPU; one a core, or one a GPU, unless given.")
]
Gpus = Annotated[
    str | None,
    typer.Option(
        "--gpus", help="GPUs to use: numbers of nvidia-smi or beginnings of UUIDs, with commas; none: the CPU."
    ),
]
PerDevice = Annotated[
    int | None, typer.Option("--per-device", help="Runs that may share a GPU, as far as their measured memory allows.")
]
Runner = Annotated[str, typer.Option("--runner", help="How a run is started: local or inline.")]
StallTimeout = Annotated[
    float | None,
    typer.Option("--stall-timeout", help="Seconds without a step after which a run is ended; 1800 unless given."),
]
Strict = Annotated[bool, typer.Option("--strict", help="Refuse a run that was queued with other source code.")]
Notify = Annotated[
    str | None,
    typer.Option("--notify", help="When a sweep ends or a run fails: bell, a webhook's address, or a command."),
]

Ids = Annotated[list[str] | None, typer.Argument(help="Runs, by their ids or enough of their starts.", metavar="RUN…")]
Arms = Annotated[list[str] | None, typer.Option("--arm", help="Runs of this arm; may be given several times.")]
States = Annotated[list[str] | None, typer.Option("--state", help="Runs in this state; may be given several times.")]
