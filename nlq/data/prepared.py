"""Prepared tokens: a folder with one token file and one file of document bounds a split, and a manifest."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from nlq.data.split import SPLITS

FORMAT = 1
"""Version of the folder's layout and of everything that decides its numbers (split, cleaning, end-of-text ids)."""

MANIFEST = "manifest.json"
BOUNDS_DTYPE = np.dtype("<i8")
CHECKED_BYTES = 1 << 28
"""Token files up to this size are read through to check their digest; of larger ones only the length is checked."""

CHUNK_BYTES = 1 << 20

Tokens = npt.NDArray[np.unsignedinteger[Any]]
Int64 = npt.NDArray[np.int64]


class Counts(NamedTuple):
    """Size of one split; `tokens` includes one end-of-text id a document, `characters` are Unicode code points."""

    tokens: int
    documents: int
    characters: int


@dataclass(frozen=True)
class Manifest:
    """What prepared tokens are and where they came from. `sha256` covers token files and document bounds alone."""

    format: int
    sha256: str
    counts: Mapping[str, Counts]
    tokenizer: str
    vocab: int
    end_of_text: int
    dtype: str
    corpus: str
    source: str
    val_fraction: float
    split_rule: str
    python_version: str
    created_at_utc: str
    note: str

    @property
    def total_bytes(self) -> int:
        """Size of the token and bounds files."""
        return sum(file_bytes(self, split, kind) for split in SPLITS for kind in ("tokens", "bounds"))

    def to_json(self) -> str:
        """The manifest as its file holds it."""
        counts = {split: c._asdict() for split, c in self.counts.items()}
        return json.dumps({**asdict(self), "counts": counts}, indent=2) + "\n"


@dataclass(frozen=True)
class Prepared:
    """Tokens on disk. Beside SPLITS, "val" is select followed by confirm, joined in memory."""

    folder: Path
    manifest: Manifest

    def tokens(self, split: str) -> Tokens:
        """Token ids (N,) of a split, read-only; a memmap but for "val"."""
        if split == "val":
            return np.concatenate([self.tokens("select"), self.tokens("confirm")])
        path = token_file(self.folder, split)
        return np.memmap(path, dtype=self.manifest.dtype, mode="r", shape=(self.manifest.counts[split].tokens,))

    def doc_bounds(self, split: str) -> Int64:
        """Where each document begins and, last, where the split ends: (J + 1,) token offsets."""
        if split == "val":
            select = self.doc_bounds("select")
            return np.concatenate([select[:-1], select[-1] + self.doc_bounds("confirm")])
        return np.fromfile(bounds_file(self.folder, split), dtype=BOUNDS_DTYPE).astype(np.int64)

    def doc_ids_of(self, split: str, positions: Int64) -> Int64:
        """The document of each token offset, in the shape of `positions`.

        Ids count the documents of select, then of confirm, then of train, so that no two splits share one.
        """
        within = np.searchsorted(self.doc_bounds(split), positions, side="right") - 1
        return (within + self._first_doc(split)).astype(np.int64)

    def _first_doc(self, split: str) -> int:
        before = {"select": (), "val": (), "confirm": ("select",), "train": ("select", "confirm")}[split]
        return sum(self.manifest.counts[s].documents for s in before)


def token_file(folder: Path, split: str) -> Path:
    """The file of a split's token ids, little-endian."""
    return folder / f"{split}.bin"


def bounds_file(folder: Path, split: str) -> Path:
    """The file of a split's document bounds, little-endian int64."""
    return folder / f"{split}.bounds"


def file_bytes(manifest: Manifest, split: str, kind: str) -> int:
    """The size that a split's "tokens" or "bounds" file must have."""
    counts = manifest.counts[split]
    if kind == "tokens":
        return counts.tokens * np.dtype(manifest.dtype).itemsize
    return (counts.documents + 1) * BOUNDS_DTYPE.itemsize


def digest(folder: Path, dtype: str, counts: Mapping[str, Counts]) -> str:
    """SHA-256, in hex, of the token files and document bounds; names, times and the machine do not enter."""
    total = hashlib.sha256()
    for split in SPLITS:
        total.update(f"{split} {dtype} {counts[split].tokens} {counts[split].documents}\n".encode())
        for path in (token_file(folder, split), bounds_file(folder, split)):
            with path.open("rb") as file:
                while chunk := file.read(CHUNK_BYTES):
                    total.update(chunk)
    return total.hexdigest()


def opened(folder: Path, *, thorough: bool = False) -> Prepared | None:
    """The prepared tokens in a folder, or None when they are not there, cut short, or of another format.

    `thorough` compares the digest too, where the files are not too large.
    """
    manifest = _manifest(folder / MANIFEST)
    if manifest is None or not _sizes_fit(folder, manifest):
        return None
    if thorough and manifest.total_bytes <= CHECKED_BYTES and not _digest_fits(folder, manifest):
        return None
    return Prepared(folder, manifest)


def _manifest(path: Path) -> Manifest | None:
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
        if fields["format"] != FORMAT:
            return None
        counts = {split: Counts(**fields["counts"][split]) for split in SPLITS}
        return Manifest(**{**fields, "counts": counts})
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _sizes_fit(folder: Path, manifest: Manifest) -> bool:
    try:
        return all(
            token_file(folder, split).stat().st_size == file_bytes(manifest, split, "tokens")
            and bounds_file(folder, split).stat().st_size == file_bytes(manifest, split, "bounds")
            for split in SPLITS
        )
    except (OSError, TypeError):
        return False


def _digest_fits(folder: Path, manifest: Manifest) -> bool:
    try:
        return digest(folder, manifest.dtype, manifest.counts) == manifest.sha256
    except OSError:
        return False
