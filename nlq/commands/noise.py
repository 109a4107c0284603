"""`nlq noise`: σ of one run, measured and kept; and the one that was kept last."""

from pathlib import Path

from nlq.commands.report import deliver
from nlq.core.errors import NlqError
from nlq.core.noise import Noise
from nlq.report import noise as table
from nlq.runners._process import this_process
from nlq.store.database import utc_now
from nlq.store.maintenance import up_to_date
from nlq.store.noise import keep
from nlq.store.reader import Reader


def noise(db: Path, sweep: str | None, arm: str | None, form: str | None, out: Path | None) -> None:
    """Measure σ, keep it, print it. Raises NlqError as `report.noise.read`, or where nothing can be written."""
    up_to_date(db, this_process())
    found = table.read(Reader(db), sweep, arm, utc_now())
    keep(db, found.measured)
    deliver(table.sheet(found), form, out)


def latest(db: Path) -> Noise:
    """The σ that was kept last. Raises NlqError where there is none."""
    kept = Reader(db).noises() if db.is_file() else []
    if not kept:
        raise NlqError(f"{db}: no σ is kept there", "nlq power --sigma 0.0018; or measure and keep one: nlq noise")
    return kept[0]
