"""Which documents are trained on and which are held out: decided by each document's own hash, so that it does not
change when others are added or taken away."""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

SPLITS = ("train", "select", "confirm")
"""The training text and the two halves of the held-out text."""

TRAIN, SELECT, CONFIRM = range(3)

FEWEST_DOCUMENTS = 3
"""Below it there are not enough documents to give each split one, and each document is cut in three instead."""


class Assignment(NamedTuple):
    """How documents are split: by "hash", by "rank" of the hash, or by "position" within each document.

    `places` holds an index into SPLITS for each document, which "position" does not look at.
    """

    rule: str
    places: bytes


RULES = {
    "hash": "each document by its own hash",
    "rank": "few documents: those with the smallest hashes are held out, in turn for select and confirm",
    "position": "fewer than three documents: each is cut in three, train first, then select, then confirm",
}
"""What each rule does, as a manifest says it."""


def document_hash(text: str) -> int:
    """64 bits that depend on a document's content alone, the same on every machine and for ever: a copy under another
    name is on the same side."""
    content = text.encode("utf-8", errors="surrogatepass")
    return int.from_bytes(hashlib.sha256(content).digest()[:8], "big")


def assign(hashes: Sequence[int], val_fraction: float) -> Assignment:
    """Split documents, given the hash of each, so that each split has at least one; `val_fraction` is held out."""
    if len(hashes) < FEWEST_DOCUMENTS:
        return Assignment("position", bytes(len(hashes)))
    places = bytes(_by_hash(h, val_fraction) for h in hashes)
    if set(places) == {TRAIN, SELECT, CONFIRM}:
        return Assignment("hash", places)
    return Assignment("rank", _by_rank(hashes, val_fraction))


def _by_hash(h: int, val_fraction: float) -> int:
    """The upper 63 bits say whether a document is held out, the lowest bit in which half."""
    if (h >> 1) >= val_fraction * 2**63:
        return TRAIN
    return CONFIRM if h & 1 else SELECT


def _by_rank(hashes: Sequence[int], val_fraction: float) -> bytes:
    held_out = min(len(hashes) - 1, max(2, round(val_fraction * len(hashes))))
    places = bytearray(len(hashes))
    smallest_first = sorted(range(len(hashes)), key=lambda i: (hashes[i], i))
    for turn, document in enumerate(smallest_first[:held_out]):
        places[document] = CONFIRM if turn % 2 else SELECT
    return bytes(places)


def pieces(texts: Iterable[str], assignment: Assignment, val_fraction: float) -> Iterator[tuple[str, str]]:
    """Split name and text of every piece, in the order of the documents; a whole document unless cut by position.

    That there are as many texts as places is for the caller to see to.
    """
    if assignment.rule == "position":
        for text in texts:
            yield from zip(SPLITS, _cut(text, val_fraction), strict=True)
    else:
        for text, place in zip(texts, assignment.places, strict=False):
            yield SPLITS[place], text


def _cut(text: str, val_fraction: float) -> tuple[str, str, str]:
    held_out = round(val_fraction * len(text))
    start = len(text) - held_out
    middle = start + (held_out + 1) // 2
    return text[:start], text[start:middle], text[middle:]
