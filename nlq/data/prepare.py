"""From text to tokens on disk, once: built in a folder beside the final one, then renamed into place."""

import hashlib
import json
import os
import platform
from array import array
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol, cast

from nlq.core import plugin
from nlq.core.errors import NlqError
from nlq.core.spec import DataSpec
from nlq.data import building
from nlq.data.prepared import FORMAT, Counts, Manifest, Prepared, digest, opened
from nlq.data.split import RULES, Assignment, assign, document_hash, pieces
from nlq.data.tokenizers._base import Tokenizer

__all__ = [
    "Counts", "Manifest", "Prepared", "cache_folder", "corpus_bytes", "find", "listing", "open_by_digest", "prepare",
    "tokenizer",
]  # fmt: skip

CORPORA = "nlq.data.corpora"
TOKENIZERS = "nlq.data.tokenizers"
FOLDER = "data"

Progress = Callable[[int, int], None]
"""Told the number of documents that are done, and of all."""


class Corpus(Protocol):
    """What a file in `corpora/` offers. One may also have `note(spec) -> str`, a remark for the manifest."""

    def sources(self, spec: DataSpec) -> list[Path]:
        """The files, in a stable order."""

    def documents(self, spec: DataSpec) -> Iterator[tuple[str, str]]:
        """Name and text of each document, in a stable order."""


def cache_folder() -> Path:
    """Where prepared tokens are kept: $NLQ_CACHE, else $XDG_CACHE_HOME/nlq, else ~/.cache/nlq."""
    own, shared = os.environ.get("NLQ_CACHE"), os.environ.get("XDG_CACHE_HOME")
    folder = Path(own) if own else Path(shared or "~/.cache", "nlq")
    return folder.expanduser().absolute()


def tokenizer(spec: DataSpec) -> Tokenizer:
    """The spec's tokenizer. Raises NlqError when there is none of that kind or its files are missing."""
    return cast(Tokenizer, plugin.load(TOKENIZERS, spec.tokenizer).load(spec))


def corpus_bytes(spec: DataSpec) -> int:
    """Size of the sources on disk, without reading them. Raises NlqError when they are missing."""
    with building.explained(cache_folder()):
        return sum(path.stat().st_size for path in _corpus(spec).sources(spec))


def find(spec: DataSpec, cache: Path) -> Prepared | None:
    """What `prepare` would reuse, or None; writes nothing. Raises NlqError when the corpus is missing."""
    with building.explained(cache):
        return opened(_place(spec, cache))


def prepare(spec: DataSpec, cache: Path, progress: Progress | None = None) -> Prepared:
    """The spec's tokens, built now unless they are there already.

    Raises NlqError when the corpus or the tokenizer's files are missing, or the cache cannot be written. Whatever
    happens, the cache holds whole folders only; two processes that prepare the same text both get a whole one.
    """
    with building.explained(cache):
        place = _place(spec, cache)
        return opened(place, thorough=True) or _built(place, spec, progress or _silent)


def _built(place: Path, spec: DataSpec, progress: Progress) -> Prepared:
    with building.beside(place) as folder:
        _build(folder, spec, progress)
        if _place(spec, place.parents[1]) != place:
            raise NlqError("data.corpus: the text changed while it was read", "run the command again")
        building.publish(folder, place)
    built = opened(place)
    if built is None:
        raise NlqError(f"{place}: the tokens vanished as soon as they were written", "run the command again")
    return built


def listing(cache: Path) -> list[Manifest]:
    """Manifests of everything that is prepared, oldest first."""
    return sorted((p.manifest for p in _all(cache)), key=lambda m: (m.created_at_utc, m.sha256))


def open_by_digest(sha256: str, cache: Path) -> Prepared | None:
    """The prepared tokens with this digest, whatever text they came from, or None when none are whole."""
    for prepared in _all(cache):
        if prepared.manifest.sha256 == sha256 and opened(prepared.folder, thorough=True):
            return prepared
    return None


def _all(cache: Path) -> Iterator[Prepared]:
    folder = cache / FOLDER
    for path in sorted(folder.iterdir()) if folder.is_dir() else []:
        prepared = None if path.name.startswith(".") else opened(path)
        if prepared:
            yield prepared


def _corpus(spec: DataSpec) -> Corpus:
    return cast(Corpus, plugin.load(CORPORA, spec.corpus))


def _place(spec: DataSpec, cache: Path) -> Path:
    """The folder of the spec's tokens; its name changes when a source does, or anything else that matters."""
    plugin.load(TOKENIZERS, spec.tokenizer)
    stats = [(str(path), path.stat()) for path in _corpus(spec).sources(spec)]
    files = [(name, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns) for name, stat in stats]
    text = json.dumps([FORMAT, spec.corpus, spec.path, spec.tokenizer, spec.val_fraction, files])
    return cache / FOLDER / f"{spec.corpus}-{spec.tokenizer}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def _silent(done: int, total: int) -> None:
    """No progress is wanted."""


def _texts(spec: DataSpec) -> Iterator[tuple[str, str]]:
    """The documents that hold any text."""
    return ((name, text) for name, text in _corpus(spec).documents(spec) if text)


def _build(folder: Path, spec: DataSpec, progress: Progress) -> None:
    ids = tokenizer(spec)
    hashes = array("Q", (document_hash(text) for _, text in _texts(spec)))
    if not hashes:
        raise NlqError(
            f"data.corpus: {_source(spec)} holds no text", "text is UTF-8; empty and binary files are skipped"
        )
    assignment = assign(hashes, spec.val_fraction)
    counts = building.write(folder, ids, _counted(spec, assignment, len(hashes), progress))
    building.write_manifest(folder, _manifest(folder, spec, ids, assignment, counts))


def _counted(spec: DataSpec, assignment: Assignment, total: int, progress: Progress) -> Iterator[tuple[str, str]]:
    def texts() -> Iterator[str]:
        for done, (_, text) in enumerate(_texts(spec), 1):
            yield text
            progress(done, total)

    return pieces(texts(), assignment, spec.val_fraction)


def _manifest(
    folder: Path, spec: DataSpec, ids: Tokenizer, assignment: Assignment, counts: dict[str, Counts]
) -> Manifest:
    dtype = building.dtype_of(ids.vocab).str
    return Manifest(
        format=FORMAT,
        sha256=digest(folder, dtype, counts),
        counts=counts,
        tokenizer=ids.name,
        vocab=ids.vocab,
        end_of_text=ids.end_of_text,
        dtype=dtype,
        corpus=spec.corpus,
        source=_source(spec),
        val_fraction=spec.val_fraction,
        split_rule=assignment.rule,
        python_version=platform.python_version(),
        created_at_utc=datetime.now(UTC).isoformat(timespec="microseconds"),
        note=_note(spec, assignment),
    )


def _source(spec: DataSpec) -> str:
    return spec.path or f"corpus {spec.corpus}"


def _note(spec: DataSpec, assignment: Assignment) -> str:
    skipped = len(_corpus(spec).sources(spec)) - len(assignment.places)
    remarks = [f"split: {RULES[assignment.rule]}"]
    if skipped > 0:
        remarks.append(f"files without text skipped: {skipped}")
    if own := getattr(_corpus(spec), "note", None):
        remarks.append(own(spec))
    return "; ".join(r for r in remarks if r)
