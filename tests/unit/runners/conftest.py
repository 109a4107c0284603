"""The GPUs of tests/unit/runners/fake_gpus.py."""

import importlib.util
import sys
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def fake():
    spec = importlib.util.spec_from_file_location("nlq_fake_gpus", Path(__file__).with_name("fake_gpus.py"))
    if spec.name not in sys.modules:
        sys.modules[spec.name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[spec.name])
    return sys.modules[spec.name]
