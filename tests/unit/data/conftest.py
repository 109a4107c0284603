"""Small corpora, made on the spot."""

import random
from pathlib import Path

import pytest

from nlq.core.spec import DataSpec

WORDS = ["α", "the", "of", "⭐", "window", "token", "and", "a", "head", "is\n", "to", "query\n\n"]


@pytest.fixture
def corpus(tmp_path):
    """A maker of text folders: `corpus(documents, words)` gives the spec of one."""

    def make(documents: int = 40, words: int = 60, name: str = "books", **settings) -> DataSpec:
        folder = tmp_path / name
        folder.mkdir()
        draw = random.Random(documents)
        for i in range(documents):
            (folder / f"{i:03}.txt").write_text(" ".join(draw.choices(WORDS, k=words)), encoding="utf-8")
        return DataSpec(corpus="text", path=str(folder), **settings)

    return make


@pytest.fixture
def single(tmp_path):
    """A maker of one-file corpora: `single(content)` gives the spec of one."""

    def make(content: str, **settings) -> DataSpec:
        (tmp_path / "input.txt").write_text(content, encoding="utf-8")
        return DataSpec(corpus="text", path=str(tmp_path / "input.txt"), **settings)

    return make


@pytest.fixture
def cache(tmp_path) -> Path:
    return tmp_path / "cache"
