"""Files made elsewhere, read as bytes and text of a bounded size."""

import hashlib
import io
from collections.abc import Iterable
from pathlib import Path

from nlq.core.errors import Mistake, NlqError, Position, SpecError

MAX_BYTES = 256 << 20


def text_of(path: Path) -> str:
    """A text file in UTF-8, with or without a byte-order mark. Raises NlqError or SpecError."""
    content = bytes_of(path)
    if not content.strip():
        raise NlqError(f"{path}: is empty", "export it again, or leave this run out")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = content[: error.start]
        place = Position(before.count(b"\n") + 1, error.start - before.rfind(b"\n"))
        message = f"not UTF-8 text ({error.reason}: byte 0x{content[error.start]:02x})"
        hint = f"iconv -f latin1 -t utf-8 {path.name} > new{path.suffix}"
        raise SpecError([Mistake("", message, place, hint)], str(path)) from error


def lines_of(path: Path) -> list[str]:
    """The lines of a text file, as an editor counts them."""
    return list(io.StringIO(text_of(path), newline=None))


def bytes_of(path: Path) -> bytes:
    """The content of a file. Raises NlqError where it cannot be read or is too large for a curve."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise NlqError(f"{path}: larger than {MAX_BYTES >> 20} MiB, this is no curve")
        return path.read_bytes()
    except OSError as error:
        raise NlqError(f"{path}: cannot be read ({error.strerror})") from error


def digest(paths: Iterable[Path]) -> str:
    """SHA-256 of one file; of several, of their names and digests."""
    found = [(path.name, hashlib.sha256(bytes_of(path)).hexdigest()) for path in paths]
    if len(found) == 1:
        return found[0][1]
    return hashlib.sha256("".join(f"{name} {one}\n" for name, one in found).encode()).hexdigest()
