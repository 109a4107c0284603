"""`nlq export`: steps and evaluations as CSV, Parquet or JSON."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

from nlq.commands._console import console, print_json
from nlq.core.errors import NlqError, nearest
from nlq.core.run import EvalPoint, Member
from nlq.report.render import strict
from nlq.store.reader import Reader

if TYPE_CHECKING:
    import pandas as pd

KINDS = ("steps", "evals")
FORMATS = ("csv", "parquet", "json")


def export(
    db: Path, sweep: str | None, arm: str | None, run: str | None, kind: str, form: str | None, out: Path | None
) -> None:
    """Write every step or evaluation of a run, an arm or a sweep to `out`, or to standard output."""
    if kind not in KINDS:
        raise NlqError(f'nothing called "{kind}" to export', f"nlq export {nearest(kind, KINDS)}")
    if run is not None and (arm is not None or sweep is not None):
        raise NlqError("--run names one run: --arm and --sweep have nothing to choose", "leave out one or the other")
    form = form or (out.suffix.lstrip(".").lower() if out else "csv")
    if form not in FORMATS:
        raise NlqError(f'no export format "{form}"', f"--format {nearest(form, FORMATS)}")
    if form == "parquet" and out is None:
        raise NlqError("Parquet is no text: it needs a file", "--out rows.parquet")
    frame = _rows(Reader(db), sweep, arm, run, kind)
    _write(frame, form, out)
    if out:
        console(stderr=True).print(f"{len(frame):,} rows in {out}")


def _rows(reader: Reader, sweep: str | None, arm: str | None, run: str | None, kind: str) -> "pd.DataFrame":
    import pandas as pd

    places = _places(reader, sweep, arm, run)
    ids = list(dict.fromkeys(str(place["run_id"]) for place in places))
    if kind == "steps":
        rows = reader.steps(ids)
    else:
        points = [(run_id, *point) for run_id, found in reader.evals(ids).items() for point in found]
        rows = pd.DataFrame(points, columns=["run_id", *EvalPoint._fields])
    return pd.DataFrame(places).merge(rows, on="run_id")


def _places(reader: Reader, sweep: str | None, arm: str | None, run: str | None) -> list[dict[str, object]]:
    """What tells one run's rows from another's: its id, and its arm, point and seed where a sweep is asked for."""
    if run is not None:
        record = reader.run(run)
        return [{"run_id": record.run_id, "seed": record.seed}]
    members = reader.sweep(sweep).members
    arms = {m.arm for m in members}
    if arm is not None and arm not in arms:
        raise NlqError(f'no arm "{arm}" in this sweep', f"--arm: {nearest(arm, arms)}")
    return [_place(m) for m in members if arm in (None, m.arm)]


def _place(member: Member) -> dict[str, object]:
    point = {
        name: json.dumps(value) if isinstance(value, dict | list) else value for name, value in member.point.items()
    }
    return {"run_id": member.run.run_id, "arm": member.arm, **point, "seed": member.run.seed}


def _write(frame: "pd.DataFrame", form: str, out: Path | None) -> None:
    try:
        if form == "parquet":
            frame.to_parquet(out, index=False)
        elif form == "csv":
            text = frame.to_csv(out, index=False, na_rep="nan")
            print(text or "", end="")
        elif out is None:
            print_json(frame.to_dict("records"))
        else:
            out.write_text(json.dumps(strict(frame.to_dict("records")), allow_nan=False), encoding="utf-8")
    except OSError as error:
        raise NlqError(
            f"{out}: cannot be written ({error.strerror or error})", "--out FILE, in a folder that you may write"
        ) from error
