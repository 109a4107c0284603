"""Which code runs: a digest of nlq's own source, and the commit that it came from."""

import hashlib
import subprocess
from functools import cache
from pathlib import Path

from nlq.core.run import CodeState

PACKAGE = Path(__file__).resolve().parent
SUFFIXES = (".py", ".yaml", ".csv")


def code_state() -> CodeState:
    """The source in use; commit and dirty are None where it is not under git."""
    if _git("ls-files", "--error-unmatch", "__init__.py") is None:
        return CodeState(source_sha256(), None, None)
    commit, changes = _git("rev-parse", "HEAD"), _git("status", "--porcelain", "--", ".")
    return CodeState(source_sha256(), commit, None if changes is None else bool(changes))


@cache
def source_sha256() -> str:
    """Digest of every source file of the package when this process first asked, or the one that it was forked from."""
    return source_on_disk_sha256()


def source_on_disk_sha256() -> str:
    """The same digest of the files as they are now."""
    digest = hashlib.sha256()
    for path in sorted(p for p in PACKAGE.rglob("*") if p.suffix in SUFFIXES):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(PACKAGE).as_posix()}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()


def _git(*arguments: str) -> str | None:
    """The output of git in the package's folder, or None where git refuses or is not there."""
    try:
        done = subprocess.run(["git", *arguments], cwd=PACKAGE, capture_output=True, text=True, check=False)
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None
