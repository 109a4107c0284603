"""Shared by all tests: shapes in `models/` are checked, nothing reaches the network or the user's own folders."""

import os
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from jaxtyping import install_import_hook

os.environ.setdefault("OMP_NUM_THREADS", "1")  # tests share the cores among themselves already
install_import_hook("nlq.models", "beartype.beartype")

from nlq import cli  # noqa: E402 - after the hook

SMALL = """{
  data: {corpus: text, path: corpus.txt},
  model: {layers: 1, heads: 2, width: 16, context: 16},
  optim: {warmup_steps: 2},
  train: {steps: 12, batch_tokens: 64, eval_every: 4, eval_windows: 8}}"""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--golden", action="append", default=[], help="a further file of trajectories to reproduce")


@pytest.fixture(autouse=True, scope="session")
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The corpus cache of the tests, shared by all of them."""
    folder = tmp_path_factory.getbasetemp().parent / "nlq-test-cache"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NLQ_CACHE", str(folder))
        patch.delenv("NLQ_DB", raising=False)
        yield


@pytest.fixture
def repository() -> Path:
    """The folder of the project."""
    return Path(__file__).resolve().parent.parent


class Done(NamedTuple):
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str


@pytest.fixture
def nlq(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Callable[..., Done]:
    """Runs a command of nlq in this process, in an empty folder of its own."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: object) -> Done:
        capsys.readouterr()
        monkeypatch.setattr("sys.argv", ["nlq", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        printed = capsys.readouterr()
        return Done(ended.value.code or 0, printed.out, printed.err)

    return run


@pytest.fixture
def write_spec(tmp_path: Path) -> Callable[[str], Path]:
    """Writes a spec into the test's folder. Its base is a model so small that a run takes a moment."""

    lines = (f"line {i} of a small text, {i * i} and {i % 7}" for i in range(400))
    (tmp_path / "corpus.txt").write_text("\n".join(lines), encoding="utf-8")

    def write(text: str, name: str = "spec.yaml", base: str = SMALL) -> Path:
        path = tmp_path / name
        path.write_text(f"base: {base}\n{textwrap.dedent(text)}", encoding="utf-8")
        return path

    return write
