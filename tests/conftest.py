"""Shared by all tests: shapes in `models/` are checked, nothing reaches the network or the user's own folders."""

from pathlib import Path

import pytest
from jaxtyping import install_import_hook

install_import_hook("nlq.models", "beartype.beartype")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--golden", action="append", default=[], help="a further file of trajectories to reproduce")


@pytest.fixture(autouse=True, scope="session")
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
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
