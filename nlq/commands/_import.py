"""`nlq import` on the command line. Nothing slow is imported here: `nlq --help` reads this file."""

from pathlib import Path
from typing import Annotated

import typer

from nlq.commands._options import RUNS_DB, Db, Json


def import_runs(
    spec: Annotated[Path, typer.Argument(help="The YAML that says which files are runs of which arms.")],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Read everything and list the runs; write nothing.")
    ] = False,
    json: Json = False,
    db: Db = RUNS_DB,
) -> None:
    """Take curves and runs made elsewhere: CSV, W&B exports, nanoGPT's logs, the paper's output folders."""
    from nlq.commands.importing import import_runs as take

    take(spec, db, dry_run=dry_run, as_json=json)
