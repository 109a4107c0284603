"""The synthetic sweeps of stats/fake.py, for the tests of statistics, tables and figures."""

import importlib.util
import sys
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def fake():
    path = Path(__file__).parent / "stats" / "fake.py"
    spec = importlib.util.spec_from_file_location("nlq_fake_sweeps", path)
    if spec.name not in sys.modules:
        sys.modules[spec.name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[spec.name])
    return sys.modules[spec.name]
