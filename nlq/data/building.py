"""The writing half of preparation: a folder that is whole or not there, and errors that say what to do."""

import errno
import os
import secrets
import shutil
import socket
import time
from array import array
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from nlq.core.disk import sync
from nlq.core.errors import NlqError
from nlq.data.prepared import BOUNDS_DTYPE, MANIFEST, Counts, Manifest, bounds_file, opened, token_file
from nlq.data.split import SPLITS
from nlq.data.tokenizers._base import Ids, Tokenizer

PREFIX = ".building"
STALE_SECONDS = 24 * 3600
"""After this long a half-made folder of another host is taken for dead."""

HINTS = {
    errno.ENOSPC: "free some room there, or set NLQ_CACHE to a folder on a larger disk",
    errno.EDQUOT: "the quota is used up: free some room, or set NLQ_CACHE to a folder on another disk",
}


@contextmanager
def explained(cache: Path) -> Iterator[None]:
    """Turn what the operating system says, of a source or of the cache, into an NlqError with the way out."""
    try:
        yield
    except OSError as error:
        where = Path(os.fsdecode(error.filename)) if isinstance(error.filename, str | bytes) else cache
        reason = error.strerror or str(error)
        if not where.is_relative_to(cache) and not cache.is_relative_to(where):
            raise NlqError(f"{where}: cannot be read: {reason}", "check the file and its permissions") from error
        hint = HINTS.get(error.errno or 0, "set NLQ_CACHE to a folder that you may write to")
        raise NlqError(f"cache {where}: cannot be written: {reason}", hint) from error


@contextmanager
def beside(place: Path) -> Iterator[Path]:
    """A new folder in the parent of `place`, gone at the end unless it was renamed; those of dead processes too."""
    place.parent.mkdir(parents=True, exist_ok=True)
    _remove_stale(place.parent)
    folder = place.parent / f"{PREFIX}-{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
    folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _remove_stale(parent: Path) -> None:
    for folder in parent.glob(f"{PREFIX}-*"):
        if _is_stale(folder):
            shutil.rmtree(folder, ignore_errors=True)


def _is_stale(folder: Path) -> bool:
    host, _, pid = folder.name.removeprefix(f"{PREFIX}-").rpartition("-")[0].rpartition("-")
    if host == socket.gethostname() and pid.isdigit():
        return not _alive(int(pid))
    with suppress(OSError):
        return time.time() - folder.stat().st_mtime > STALE_SECONDS
    return False


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True


def publish(folder: Path, place: Path) -> None:
    """Rename a finished folder to `place`. When another process was first its folder stays; a damaged one goes."""
    sync(folder)
    for _ in range(8):
        try:
            folder.rename(place)
        except OSError as error:
            if error.errno not in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):
                raise
        else:
            sync(place.parent)
            return
        if opened(place, thorough=True):
            return
        _move_away(place)
    raise NlqError(f"{place}: other processes keep replacing it", "run the command again when they are done")


def _move_away(place: Path) -> None:
    away = place.parent / f"{PREFIX}-{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
    with suppress(FileNotFoundError):  # another process was quicker
        place.rename(away)
        if away.is_dir():
            shutil.rmtree(away, ignore_errors=True)
        else:
            away.unlink()


def dtype_of(vocab: int) -> "np.dtype[np.unsignedinteger[Any]]":
    """Little-endian uint16 where every id below `vocab` fits, else uint32."""
    return np.dtype("<u2") if vocab <= 2**16 else np.dtype("<u4")


def write(folder: Path, tokenizer: Tokenizer, pieces: Iterable[tuple[str, str]]) -> dict[str, Counts]:
    """Write token and bounds files of all splits from (split, text) pairs; returns their sizes."""
    with ExitStack() as stack:
        writers = {split: stack.enter_context(SplitWriter(folder, split, tokenizer)) for split in SPLITS}
        for split, text in pieces:
            writers[split].add(text)
        return {split: writer.finish() for split, writer in writers.items()}


class SplitWriter:
    """The two files of one split, filled document by document."""

    def __init__(self, folder: Path, split: str, tokenizer: Tokenizer) -> None:
        self._folder, self._split, self._tokenizer = folder, split, tokenizer
        self._dtype = dtype_of(tokenizer.vocab)
        self._bounds = array("q", [0])
        self._characters = 0
        self._file = token_file(folder, split).open("wb")

    def __enter__(self) -> "SplitWriter":
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def add(self, text: str) -> None:
        """Append a document and its end-of-text id."""
        ids = np.append(fitting(self._tokenizer.encode(text), self._tokenizer), self._tokenizer.end_of_text)
        self._file.write(ids.astype(self._dtype).tobytes())
        self._bounds.append(self._bounds[-1] + len(ids))
        self._characters += len(text)

    def finish(self) -> Counts:
        """Put everything on the disk; returns the split's size."""
        _flush(self._file)
        with bounds_file(self._folder, self._split).open("wb") as file:
            file.write(np.array(self._bounds, dtype=BOUNDS_DTYPE).tobytes())
            _flush(file)
        return Counts(self._bounds[-1], len(self._bounds) - 1, self._characters)


def fitting(ids: Ids, tokenizer: Tokenizer) -> Ids:
    """The ids (N,), as they are. Raises NlqError when one is outside the vocabulary: it is never wrapped."""
    if ids.size and not 0 <= (worst := int(ids.max() if ids.min() >= 0 else ids.min())) < tokenizer.vocab:
        raise NlqError(
            f"data.tokenizer: {tokenizer.name} gave id {worst}, outside its vocabulary of {tokenizer.vocab}",
            "its files and its vocabulary size do not belong together",
        )
    return ids


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write the manifest, last of all files."""
    with (folder / MANIFEST).open("w", encoding="utf-8") as file:
        file.write(manifest.to_json())
        _flush(file)


def _flush(file: Any) -> None:
    file.flush()
    os.fsync(file.fileno())
