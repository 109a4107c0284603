"""Which code ran: the commit of nlq's own source, and whether it was changed since."""

import subprocess
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent


def code_state() -> tuple[str | None, bool | None]:
    """(commit, changed since) of the source in use, or (None, None) where it is not under git."""
    if _git("ls-files", "--error-unmatch", "__init__.py") is None:
        return None, None
    commit, changes = _git("rev-parse", "HEAD"), _git("status", "--porcelain", "--", ".")
    return commit, None if changes is None else bool(changes)


def _git(*arguments: str) -> str | None:
    """The output of git in the package's folder, or None where git refuses or is not there."""
    try:
        done = subprocess.run(["git", *arguments], cwd=PACKAGE, capture_output=True, text=True, check=False)
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None
