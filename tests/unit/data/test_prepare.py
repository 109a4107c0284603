"""Preparation: what stands in the folder, that it is whole or not there, and how it is found again."""

import errno
import itertools
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from nlq.core.errors import NlqError
from nlq.core.spec import DataSpec
from nlq.data import building, prepared
from nlq.data.building import PREFIX
from nlq.data.corpora import text
from nlq.data.prepare import (
    cache_folder,
    corpus_bytes,
    find,
    listing,
    open_by_digest,
    prepare,
    tokenizer,
)
from nlq.data.split import SPLITS, assign, document_hash


def contents(cache: Path) -> list[str]:
    return sorted(p.name for p in (cache / "data").iterdir()) if (cache / "data").is_dir() else []


def documents_of(found, split: str) -> list[str]:
    tokens, bounds = found.tokens(split), found.doc_bounds(split)
    ids = tokenizer(DataSpec(tokenizer=found.manifest.tokenizer))
    assert all(tokens[end - 1] == ids.end_of_text for end in bounds[1:])
    return [ids.decode(tokens[a : b - 1]) for a, b in itertools.pairwise(bounds)]


def test_every_document_stands_in_its_split_with_an_end(corpus, cache):
    spec = corpus(val_fraction=0.3)
    found = prepare(spec, cache)
    read = list(text.documents(spec))
    places = assign([document_hash(text) for _, text in read], 0.3).places
    for split in SPLITS:
        expected = [content for (_, content), place in zip(read, places, strict=True) if SPLITS[place] == split]
        assert documents_of(found, split) == expected
        assert found.manifest.counts[split].documents == len(expected)
        assert found.manifest.counts[split].characters == sum(map(len, expected))
        assert found.manifest.counts[split].tokens == len(found.tokens(split)) == found.doc_bounds(split)[-1]


def test_tokens_are_a_read_only_memmap_of_the_small_type(corpus, cache):
    tokens = prepare(corpus(), cache).tokens("train")
    assert isinstance(tokens, np.memmap)
    assert tokens.dtype == np.uint16
    assert not tokens.flags.writeable


def test_val_is_select_followed_by_confirm(corpus, cache):
    found = prepare(corpus(val_fraction=0.3), cache)
    both = np.concatenate([found.tokens("select"), found.tokens("confirm")])
    assert np.array_equal(found.tokens("val"), both)
    positions = np.arange(len(both))
    in_select = len(found.tokens("select"))
    assert np.array_equal(
        found.doc_ids_of("val", positions),
        np.concatenate(
            [found.doc_ids_of("select", positions[:in_select]), found.doc_ids_of("confirm", positions[:-in_select])]
        ),
    )


def test_document_ids_are_never_shared_between_splits(corpus, cache):
    found = prepare(corpus(val_fraction=0.3), cache)
    ids = [found.doc_ids_of(split, np.arange(len(found.tokens(split)))) for split in SPLITS]
    assert sum(len(np.unique(i)) for i in ids) == len(np.unique(np.concatenate(ids))) == 40
    bounds = found.doc_bounds("confirm")
    edges = np.array([[bounds[1] - 1, bounds[1]]])
    assert np.diff(found.doc_ids_of("confirm", edges)).tolist() == [[1]], "an end-of-text id belongs to what it ends"


def test_manifest_says_what_it_is(corpus, cache):
    spec = corpus()
    manifest = prepare(spec, cache).manifest
    assert (manifest.corpus, manifest.source, manifest.tokenizer) == ("text", spec.path, "bytes")
    assert (manifest.vocab, manifest.end_of_text, manifest.dtype) == (257, 256, "<u2")
    assert manifest.python_version == ".".join(map(str, sys.version_info[:3]))
    assert manifest.total_bytes == sum(
        p.stat().st_size for p in next((cache / "data").iterdir()).iterdir() if p.suffix != ".json"
    )
    assert json.loads(manifest.to_json())["counts"]["train"]["documents"] == manifest.counts["train"].documents


def test_digest_ignores_place_and_time_but_not_content(corpus, cache, tmp_path):
    one, two = corpus(name="one"), corpus(name="two")
    for file in Path(two.path).iterdir():
        os.utime(file, (1, 1))
    first, second = prepare(one, cache).manifest, prepare(two, tmp_path / "other cache").manifest
    assert first.sha256 == second.sha256
    (Path(two.path) / "000.txt").write_text("other")
    assert prepare(two, cache).manifest.sha256 != first.sha256
    assert prepare(one.model_copy(update={"val_fraction": 0.3}), cache).manifest.sha256 != first.sha256


def test_prepared_once_and_reused(corpus, cache):
    spec = corpus()
    assert find(spec, cache) is None
    assert contents(cache) == [], "to look writes nothing"
    first = prepare(spec, cache)
    assert prepare(spec, cache).manifest.created_at_utc == first.manifest.created_at_utc
    assert find(spec, cache) == first
    assert len(contents(cache)) == 1
    changed = Path(spec.path) / "000.txt"
    changed.write_text("changed")
    assert find(spec, cache) is None


def test_listing_and_opening_by_digest(corpus, cache):
    assert listing(cache) == []
    made = [prepare(corpus(documents=n, name=str(n)), cache) for n in (20, 10)]
    assert listing(cache) == [m.manifest for m in made]
    assert open_by_digest(made[1].manifest.sha256, cache) == made[1]
    assert open_by_digest("0" * 64, cache) is None
    assert open_by_digest("0" * 64, cache / "nowhere") is None


def test_progress_counts_documents(corpus, cache):
    seen = []
    prepare(corpus(documents=5), cache, lambda done, total: seen.append((done, total)))
    assert seen == [(n, 5) for n in range(1, 6)]


def test_corpus_bytes_is_the_size_on_disk(single):
    assert corpus_bytes(single("αβ\n")) == 5
    assert corpus_bytes(DataSpec()) > 8e6


def test_one_file_is_cut_by_position(single, cache):
    found = prepare(single("x" * 900 + "y" * 50 + "z" * 50, val_fraction=0.1), cache)
    assert [documents_of(found, split) for split in SPLITS] == [["x" * 900], ["y" * 50], ["z" * 50]]
    assert found.manifest.split_rule == "position"
    assert "cut in three" in found.manifest.note


def test_skipped_files_are_counted(corpus, cache):
    spec = corpus(documents=4)
    (Path(spec.path) / "image.png").write_bytes(b"\x89PNG\0")
    (Path(spec.path) / "empty.txt").touch()
    (Path(spec.path) / ".hidden").touch()
    manifest = prepare(spec, cache).manifest
    assert sum(c.documents for c in manifest.counts.values()) == 4
    assert "files without text skipped: 2" in manifest.note
    assert "hidden files left out: 1" in manifest.note


def test_awkward_names_survive(tmp_path, cache):
    folder = tmp_path / "α-λ ⭐ folder"
    folder.mkdir()
    (folder / ("n" * 200 + ".txt")).write_text("long")
    (folder / os.fsdecode(b"byte \xf8.txt")).write_text("odd")
    (folder / "⭐.txt").write_text("star")
    assert prepare(DataSpec(corpus="text", path=str(folder)), cache).manifest.source.endswith("⭐ folder")
    assert len(listing(cache)) == 1


@pytest.mark.parametrize("content", ["", None])
def test_a_corpus_without_text_is_refused(tmp_path, cache, content):
    (tmp_path / "input.txt").write_bytes(b"\0\1\2" if content is None else b"")
    with pytest.raises(NlqError, match="holds no text"):
        prepare(DataSpec(corpus="text", path=str(tmp_path / "input.txt")), cache)
    assert contents(cache) == []


@pytest.mark.parametrize("action", [lambda s, c: find(s, c), lambda s, c: prepare(s, c), lambda s, c: corpus_bytes(s)])
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"corpus": "text", "path": "/nowhere/at/all"}, "no such file or folder"),
        ({"corpus": "txt"}, 'did you mean "text"'),
    ],
)
def test_bad_corpora_are_refused_everywhere(cache, action, settings, message):
    with pytest.raises(NlqError, match=message):
        action(DataSpec(**settings), cache)
    assert not cache.exists()


def test_unknown_tokenizer_names_the_nearest(cache):
    with pytest.raises(NlqError, match='did you mean "gpt2"'):
        find(DataSpec(tokenizer="gpt-2"), cache)


def test_cache_folder_follows_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("NLQ_CACHE", str(tmp_path / "own"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "own"
    monkeypatch.delenv("NLQ_CACHE")
    assert cache_folder() == tmp_path / "xdg" / "nlq"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "nlq"


# --- token ids that do not fit ---------------------------------------------------------------------------------------


class Wide:
    """A tokenizer that gives one id, whatever the text."""

    name, end_of_text = "wide", 0

    def __init__(self, vocab: int, given: int) -> None:
        self.vocab, self.given = vocab, given

    def encode(self, text: str) -> np.ndarray:
        return np.array([self.given])


def test_an_id_of_70000_is_kept_in_uint32(tmp_path):
    counts = building.write(tmp_path, Wide(70_001, 70_000), [(split, "a") for split in SPLITS])
    assert counts["train"].tokens == 2
    assert np.fromfile(tmp_path / "train.bin", "<u4").tolist() == [70_000, 0]


@pytest.mark.parametrize(("vocab", "given"), [(50_257, 70_000), (70_000, 70_000), (257, -1), (257, 257)])
def test_an_id_outside_the_vocabulary_is_refused(tmp_path, vocab, given):
    with pytest.raises(NlqError, match=f"gave id {given}, outside its vocabulary"):
        building.write(tmp_path, Wide(vocab, given), [("train", "a")])


@pytest.mark.parametrize(("vocab", "dtype"), [(257, "<u2"), (65_536, "<u2"), (65_537, "<u4")])
def test_the_type_is_the_smallest_that_holds_all_ids(vocab, dtype):
    assert building.dtype_of(vocab).str == dtype


# --- whole or not there ----------------------------------------------------------------------------------------------


def test_an_exception_half_way_leaves_nothing(corpus, cache):
    def stop(done: int, total: int) -> None:
        if done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prepare(corpus(), cache, stop)
    assert contents(cache) == []


def test_a_killed_preparation_leaves_nothing_that_counts(corpus, cache):
    spec = corpus()
    script = (
        "import sys, time; from pathlib import Path; from nlq.core.spec import DataSpec; from nlq.data import prepare\n"
        "prepare.prepare(DataSpec(corpus='text', path=sys.argv[1]), Path(sys.argv[2]), "
        "lambda done, total: print(done, flush=True) or time.sleep(60))"
    )
    child = subprocess.Popen([sys.executable, "-c", script, spec.path, str(cache)], stdout=subprocess.PIPE)
    assert child.stdout.readline() == b"1\n"
    child.send_signal(signal.SIGKILL)
    child.wait()
    child.stdout.close()
    assert len(contents(cache)) == 1
    assert find(spec, cache) is None
    assert listing(cache) == []
    prepare(spec, cache)
    assert len(contents(cache)) == len(listing(cache)) == 1


def test_only_dead_folders_are_removed(corpus, cache):
    host, data = socket.gethostname(), cache / "data"
    alive, elsewhere, old = f"{PREFIX}-{host}-1-aa", f"{PREFIX}-other-host-7-bb", f"{PREFIX}-other-host-8-cc"
    for name in (alive, elsewhere, old, f"{PREFIX}-{host}-4194999-dd", f"{PREFIX}-odd"):
        (data / name).mkdir(parents=True)
    os.utime(data / old, (time.time() - building.STALE_SECONDS - 60,) * 2)
    prepare(corpus(), cache)
    assert {n for n in contents(cache) if n.startswith(PREFIX)} == {alive, elsewhere, f"{PREFIX}-odd"}


def test_two_processes_at_once_both_get_a_whole_folder(corpus, cache):
    spec = corpus(documents=200)
    script = (
        "import sys; from pathlib import Path; from nlq.core.spec import DataSpec; from nlq.data import prepare\n"
        "sys.stdin.readline()\n"
        "p = prepare.prepare(DataSpec(corpus='text', path=sys.argv[1]), Path(sys.argv[2]))\n"
        "print(p.manifest.sha256, len(p.tokens('train')))"
    )
    run = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    children = [subprocess.Popen([sys.executable, "-c", script, spec.path, str(cache)], **run) for _ in range(3)]
    for child in children:
        child.stdin.write("go\n")
        child.stdin.flush()
    outputs = {child.communicate()[0] for child in children}
    assert [child.returncode for child in children] == [0, 0, 0]
    assert len(outputs) == 1
    assert len(contents(cache)) == 1


def test_the_second_to_finish_keeps_what_the_first_made(corpus, cache):
    spec = corpus()

    def meanwhile(done: int, total: int) -> None:
        if done == total:
            first.append(prepare(spec, cache))

    first = []
    assert prepare(spec, cache, meanwhile) == first[0]
    assert len(contents(cache)) == 1


def test_text_that_changes_meanwhile_is_refused(corpus, cache):
    spec = corpus()

    def meanwhile(done: int, total: int) -> None:
        if done == 3:
            (Path(spec.path) / "one more.txt").write_text("more")

    with pytest.raises(NlqError, match="changed while it was read"):
        prepare(spec, cache, meanwhile)
    assert contents(cache) == []


def test_a_source_that_vanishes_is_an_error_with_its_name(corpus, cache):
    spec = corpus()
    with pytest.raises(NlqError, match=r"030\.txt: cannot be read"):
        prepare(spec, cache, lambda done, total: (Path(spec.path) / "030.txt").unlink(missing_ok=True))
    assert contents(cache) == []


def cut_short(folder: Path) -> None:
    os.truncate(folder / "train.bin", 10)


def bounds_missing(folder: Path) -> None:
    (folder / "select.bounds").unlink()


def manifest_cut(folder: Path) -> None:
    os.truncate(folder / "manifest.json", 40)


def manifest_strange(folder: Path) -> None:
    (folder / "manifest.json").write_text('{"format": 1, "counts": {"train": {"tokens": "x"}}}')


def older_format(folder: Path) -> None:
    file = folder / "manifest.json"
    file.write_text(file.read_text().replace('"format": 1', '"format": 0'))


def emptied(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.mkdir()


def a_file_instead(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.touch()


DAMAGE = [cut_short, bounds_missing, manifest_cut, manifest_strange, older_format, emptied, a_file_instead]


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_folder_is_noticed_and_rebuilt(corpus, cache, damage):
    spec = corpus()
    before = prepare(spec, cache)
    damage(before.folder)
    assert find(spec, cache) is None
    assert listing(cache) == []
    assert open_by_digest(before.manifest.sha256, cache) is None
    assert prepare(spec, cache).manifest.sha256 == before.manifest.sha256
    assert len(contents(cache)) == 1


def test_a_changed_byte_is_noticed_where_it_matters(corpus, cache):
    spec = corpus()
    before = prepare(spec, cache)
    file = before.folder / "train.bin"
    content = bytearray(file.read_bytes())
    content[100] ^= 1
    file.write_bytes(content)
    assert open_by_digest(before.manifest.sha256, cache) is None
    assert bytes(content) != (prepare(spec, cache).folder / "train.bin").read_bytes()


def test_large_files_are_trusted_by_their_length(corpus, cache, monkeypatch):
    found = prepare(corpus(), cache)
    monkeypatch.setattr(prepared, "CHECKED_BYTES", 10)
    monkeypatch.setattr(prepared, "digest", lambda *a: pytest.fail("read through"))
    assert open_by_digest(found.manifest.sha256, cache) == found


# --- a cache that cannot be written ----------------------------------------------------------------------------------


def test_a_cache_below_a_file_is_an_error_with_a_way_out(corpus, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(NlqError, match="cannot be written") as caught:
        prepare(corpus(), tmp_path / "file" / "cache")
    assert "NLQ_CACHE" in caught.value.hint


def test_a_full_disk_is_an_error_with_a_way_out(corpus, cache, monkeypatch):
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(building.os, "fsync", full)
    with pytest.raises(NlqError, match="No space left") as caught:
        prepare(corpus(), cache)
    assert "free some room" in caught.value.hint
    assert contents(cache) == []


def refuse_folders(self: Path, *args, **kwargs) -> None:
    raise PermissionError(errno.EROFS, os.strerror(errno.EROFS), str(self))


def test_a_read_only_cache_is_an_error_unless_the_tokens_are_there(corpus, cache, monkeypatch):
    spec, other = corpus(), corpus(name="other", documents=10)
    found = prepare(spec, cache)
    monkeypatch.setattr(Path, "mkdir", refuse_folders)
    assert prepare(spec, cache) == found
    with pytest.raises(NlqError, match="Read-only file system") as caught:
        prepare(other, cache)
    assert "NLQ_CACHE" in caught.value.hint


def test_the_real_corpus_fills_every_split(cache):
    found = prepare(DataSpec(), cache)
    counts = found.manifest.counts
    assert counts["train"].tokens > 8e6
    assert all(counts[split].tokens > 50_000 for split in ("select", "confirm"))
    assert found.manifest.split_rule == "hash"
