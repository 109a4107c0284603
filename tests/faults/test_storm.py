"""The short form of `make faults`."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture
def storm() -> ModuleType:
    """The long form's module; it stands beside this file and is also a program."""
    spec = importlib.util.spec_from_file_location("nlq_storm", Path(__file__).with_name("storm.py"))
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["nlq_storm"] = module
    spec.loader.exec_module(module)
    return module


def test_a_sweep_under_faults_equals_a_quiet_one(storm: ModuleType, tmp_path: Path) -> None:
    print(storm.weather(tmp_path, seed=1, faults=20, runs=8, steps=1000))
