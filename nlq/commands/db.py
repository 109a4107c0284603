"""`nlq db`: a backup while runs train, a check of everything, and the tables of this version."""

from pathlib import Path

from nlq.commands._console import console, print_json, size
from nlq.store import maintenance
from nlq.store.backup import copies
from nlq.store.maintenance import Finding

EXIT_FOUND = 1


def backup(db: Path, out: Path | None, *, as_json: bool) -> None:
    """Copy a database and say where the copy is."""
    made = maintenance.backup(db, out)
    if as_json:
        print_json({"database": str(db), "backup": str(made), "bytes": made.stat().st_size})
        return
    print(made)
    console(stderr=True).print(f"{size(made.stat().st_size)}; to go back: cp {made} {db}", markup=False, soft_wrap=True)


def check(db: Path, *, as_json: bool) -> int:
    """Print what is wrong with a database, and return the exit code: 1 where anything is."""
    findings = maintenance.check(db)
    if as_json:
        print_json({"database": str(db), "ok": not findings, "findings": [one._asdict() for one in findings]})
    elif not findings:
        print(f"{db}: whole")
    else:
        _print(db, findings)
    return EXIT_FOUND if findings else 0


def upgrade(db: Path, *, as_json: bool) -> None:
    """Bring a database to this version's tables, and say what was done."""
    done = maintenance.upgrade(db)
    if as_json:
        made = None if done.backup is None else str(done.backup)
        print_json({"database": str(db), "applied": done.applied, "backup": made})
    elif not done.applied:
        print(f"{db}: up to date")
    else:
        print(f"{db}: applied {', '.join(done.applied)}; as it was before: {done.backup}")


def _print(db: Path, findings: list[Finding]) -> None:
    out = console()
    for one in findings:
        examples = f": {', '.join(one.examples)}" if one.examples else ""
        more = ", …" if len(one.examples) < one.rows and one.examples else ""
        out.print(f"{one.what} ({one.rows}){examples}{more}", style="red", markup=False, soft_wrap=True)
    found = copies(db.resolve())
    if found:
        out.print(f"go back to the latest backup: cp {found[0]} {db}", markup=False, soft_wrap=True)
    else:
        salvage = f"sqlite3 {db} .recover | sqlite3 recovered.db"
        out.print(f"no backup lies beside it; save what can be read: {salvage}", markup=False, soft_wrap=True)
