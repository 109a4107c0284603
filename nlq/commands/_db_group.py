"""The group `nlq db` of the command line. Like `cli.py` it imports whatever is slow inside a command."""

from pathlib import Path
from typing import Annotated

import typer

from nlq.commands._options import RUNS_DB, Db, Json

app = typer.Typer(help="The database itself: backup, check, upgrade.", no_args_is_help=True)


@app.command("backup")
def db_backup(
    out: Annotated[Path | None, typer.Argument(help="The copy; beside the database unless given.")] = None,
    json: Json = False,
    db: Db = RUNS_DB,
) -> None:
    """Copy the database, also while runs train."""
    from nlq.commands.db import backup

    backup(db, out, as_json=json)


@app.command("check")
def db_check(json: Json = False, db: Db = RUNS_DB) -> None:
    """Look for damage and for rows that cannot be; exit code 1 where something was found."""
    from nlq.commands.db import check

    raise typer.Exit(check(db, as_json=json))


@app.command("upgrade")
def db_upgrade(json: Json = False, db: Db = RUNS_DB) -> None:
    """Bring an older database up to date, with a backup before."""
    from nlq.commands.db import upgrade

    upgrade(db, as_json=json)
