"""Where text comes from: which files, in which order, under which names."""

import sysconfig
from pathlib import Path

import pytest

from nlq.core.errors import NlqError
from nlq.core.spec import DataSpec
from nlq.data.corpora import stdlib, text

STDLIB = DataSpec()


def spec_of(path: Path | str) -> DataSpec:
    return DataSpec(corpus="text", path=str(path))


def written(folder: Path, **files: str) -> Path:
    for name, content in files.items():
        file = folder / name.replace("__", "/").replace("_txt", ".txt")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content, encoding="utf-8")
    return folder


def test_stdlib_has_about_twelve_million_characters_in_stable_order():
    names, characters = [], 0
    for name, content in stdlib.documents(STDLIB):
        names.append(name)
        characters += len(content)
    assert names == sorted(names)
    assert len(names) == len(set(names)) == len(stdlib.sources(STDLIB))
    assert 8e6 < characters < 16e6
    assert {"argparse.py", "json/decoder.py", "unittest/case.py"} <= set(names)


def test_stdlib_leaves_out_tests_packages_and_generated_files():
    for name, _ in stdlib.documents(STDLIB):
        parts = name.split("/")
        assert not {"test", "tests", "idle_test", "site-packages", "dist-packages", "__pycache__"} & set(parts)
        assert "_sysconfigdata" not in name
        assert not parts[0].startswith("config-")
        assert not Path(name).is_absolute()


def test_stdlib_without_sources_says_what_to_do(monkeypatch, tmp_path):
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(tmp_path))
    with pytest.raises(NlqError, match="no standard library sources") as caught:
        stdlib.sources(STDLIB)
    assert "data.path" in caught.value.hint


def test_stdlib_bytes_that_are_not_utf8_are_replaced(monkeypatch, tmp_path):
    (tmp_path / "old.py").write_bytes(b"# \xf8\n")
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(tmp_path))
    assert list(stdlib.documents(STDLIB)) == [("old.py", "# \ufffd\n")]


def test_folder_is_read_recursively_with_relative_names(tmp_path):
    written(tmp_path, b_txt="B", a_txt="A", deep__c_md="C", deep__er__d="D")
    assert list(text.documents(spec_of(tmp_path))) == [
        ("a.txt", "A"), ("b.txt", "B"), ("deep/c_md", "C"), ("deep/er/d", "D"),
    ]  # fmt: skip


def test_names_do_not_depend_on_where_the_folder_stands(tmp_path):
    one = written(tmp_path / "one", a_txt="A", deep__b_txt="B")
    two = written(tmp_path / "other place", a_txt="A", deep__b_txt="B")
    assert list(text.documents(spec_of(one))) == list(text.documents(spec_of(two)))
    assert list(text.documents(spec_of(f"{one}/**/*.txt"))) == list(text.documents(spec_of(two)))


def test_glob_takes_what_matches(tmp_path):
    written(tmp_path, a_txt="A", b_md="B", deep__c_txt="C")
    assert [name for name, _ in text.documents(spec_of(tmp_path / "*.txt"))] == ["a.txt"]
    assert [name for name, _ in text.documents(spec_of(tmp_path / "**" / "*.txt"))] == ["a.txt", "deep/c.txt"]


def test_a_file_whose_name_looks_like_a_glob_is_a_file(tmp_path):
    (tmp_path / "a[1].txt").write_text("A")
    assert list(text.documents(spec_of(tmp_path / "a[1].txt"))) == [("a[1].txt", "A")]


def test_hidden_files_are_left_out_and_counted(tmp_path):
    written(tmp_path, a_txt="A")
    (tmp_path / ".hidden").write_text("H")
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "config").write_text("H")
    assert list(text.documents(spec_of(tmp_path))) == [("a.txt", "A")]
    assert text.note(spec_of(tmp_path)) == "hidden files left out: 2"
    assert list(text.documents(spec_of(tmp_path / ".hidden"))) == [(".hidden", "H")]
    assert text.note(spec_of(tmp_path / "a.txt")) == ""


def test_a_hidden_folder_above_the_corpus_hides_nothing(tmp_path):
    written(tmp_path / ".cache" / "books", a_txt="A")
    assert list(text.documents(spec_of(tmp_path / ".cache" / "books"))) == [("a.txt", "A")]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"plain", "plain"),
        (b"", ""),
        ("α-λ ⭐\r\n".encode(), "α-λ ⭐\r\n"),
        ("\ufffd\ufffd".encode(), "\ufffd\ufffd"),
        (b"one bad \xf8 byte in much text", "one bad \ufffd byte in much text"),
        (b"\x89PNG\r\n\x1a\n\x00\x00", None),
        (b"\xff\xfe\xfd\xfc\xfb", None),
    ],
)
def test_binary_content_is_told_from_text(content, expected):
    assert text.decoded(content) == expected


def test_a_missing_path_names_the_nearest_entry(tmp_path):
    written(tmp_path / "shakespeare", a_txt="A")
    with pytest.raises(NlqError, match=r'data\.path: no such file or folder.*did you mean "shakespeare"\?') as caught:
        text.sources(spec_of(tmp_path / "shakespear" / "deep"))
    assert "folder or a glob" in caught.value.hint


@pytest.mark.parametrize("path", [None, ""])
def test_text_without_a_path_is_refused(path):
    with pytest.raises(NlqError, match="needs a path"):
        text.sources(DataSpec(corpus="text", path=path))


@pytest.mark.parametrize("path", ["", "*.txt", "**/*.md"])
def test_nothing_found_is_refused(tmp_path, path):
    with pytest.raises(NlqError, match="no text files"):
        text.sources(spec_of(tmp_path / path))
