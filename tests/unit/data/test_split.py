"""The split: by each document's own hash, usable with few documents, the same for ever."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nlq.data.split import SPLITS, assign, document_hash, pieces

HASHES = st.integers(0, 2**64 - 1)


def splits(hashes: list[int], val_fraction: float) -> list[str]:
    return [SPLITS[place] for place in assign(hashes, val_fraction).places]


def test_hash_is_the_one_of_the_first_release():
    assert document_hash("hello") == 0x2CF24DBA5FB0A30E


def test_hash_depends_on_name_and_content_and_where_one_ends():
    assert len({document_hash(text) for text in ("a", "b", "ab", "")}) == 4
    document_hash("broken \udcff text")


def test_fractions_are_met_on_many_documents():
    found = splits([document_hash(f"{i}") for i in range(20_000)], 0.1)
    assert found.count("train") == pytest.approx(18_000, abs=200)
    assert found.count("select") == pytest.approx(1_000, abs=150)
    assert found.count("confirm") == pytest.approx(1_000, abs=150)


def test_a_document_stays_where_it_is_when_others_come():
    hashes = [document_hash(f"{i}") for i in range(2_000)]
    assert splits(hashes, 0.1)[:1_000] == splits(hashes[:1_000], 0.1)


@settings(deadline=None)
@given(st.lists(HASHES, min_size=3, max_size=40), st.floats(0.001, 0.499))
def test_three_documents_or_more_fill_every_split(hashes, val_fraction):
    assert set(splits(hashes, val_fraction)) == set(SPLITS)


def test_few_documents_are_ranked_by_hash():
    top = 2**64 - 2
    assert assign([top, 4, top, 2], 0.05).rule == "rank"
    assert splits([top, 4, top, 2], 0.05) == ["train", "confirm", "train", "select"]
    assert splits([top - i for i in range(100)], 0.05).count("train") == 95


@settings(deadline=None)
@given(st.text(), st.floats(0.001, 0.499))
def test_one_document_is_cut_in_order_and_nothing_is_lost(text, val_fraction):
    found = list(pieces([text], assign([1], val_fraction), val_fraction))
    assert [split for split, _ in found] == list(SPLITS)
    assert "".join(piece for _, piece in found) == text


def test_one_document_is_cut_by_characters():
    found = dict(pieces(["x" * 900 + "y" * 50 + "z" * 50], assign([1], 0.1), 0.1))
    assert found == {"train": "x" * 900, "select": "y" * 50, "confirm": "z" * 50}
