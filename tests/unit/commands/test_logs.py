"""The end of a log, whatever is in it."""

import io
from pathlib import Path

import pytest

from nlq.commands import logs


@pytest.mark.parametrize("lines", [None, 0, 1, 3, 10, 5000])
@pytest.mark.parametrize(
    "text", [b"", b"one", b"one\n", b"a\nb\nc\n", b"\n" * 9, b"x\xf8y\n" * 4000, b"long " * 40_000]
)
def test_the_end_is_what_reading_everything_would_give(text: bytes, lines: int | None, monkeypatch) -> None:
    monkeypatch.setattr(logs, "BLOCK", 1000)
    everything = text.splitlines(keepends=True)
    expected = text if lines is None else b"".join(everything[max(0, len(everything) - lines) :])
    file = io.BytesIO(text)
    assert logs.tail(file, lines) == expected
    assert file.read() == b""


def test_what_is_before_the_end_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"line\n" * 1_000_000)
    with path.open("rb", buffering=0) as file:
        read: list[int] = []

        class Counting(io.RawIOBase):
            def read(self, size: int = -1) -> bytes:
                read.append(size)
                return file.read(size)

            def seek(self, *where: int) -> int:
                return file.seek(*where)

        assert logs.tail(Counting(), 3) == b"line\n" * 3
    assert sum(read) <= 2 * logs.BLOCK
