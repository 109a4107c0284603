"""What `nlq bench` measures when nothing is asked for, and what it leaves out when time is up."""

from collections.abc import Callable
from typing import Any

import pytest

from nlq.bench.sizes import Size
from nlq.commands import bench as module

Bench = Callable[..., dict[str, Any]]


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    """Returns what would be printed; nothing is measured."""
    printed: list[dict[str, Any]] = []

    def compare(size: Size, *_: object) -> dict[str, Any]:
        return {"size": size.name, "contenders": {"plain": {"step_ms": 20.0}}}

    monkeypatch.setattr(module, "compare", compare)
    monkeypatch.setattr(module, "measure_sweep", lambda *_: {"ratio": 2.0})
    monkeypatch.setattr(module, "measure_arms", lambda size, *_: [{"size": size.name}])
    monkeypatch.setattr(module, "print_json", printed.append)

    def run(*sizes: str, arms: bool = False, sweep: bool = False) -> dict[str, Any]:
        turns = module.turns_of(None, None)
        module.bench(list(sizes), 1, "cpu", turns, arms=arms, sweep=sweep, compiled=True, as_json=True)
        return printed[-1]

    return run


def sizes(found: dict[str, Any]) -> list[str]:
    return [row["size"] for row in found["rows"]]


def test_everything_by_default(bench: Bench) -> None:
    found = bench()
    assert sizes(found) == ["tiny", "small", "gpt2"]
    assert found["sweep"] == {"ratio": 2.0}
    assert found["arms"] == []


def test_what_is_asked_for_alone(bench: Bench) -> None:
    assert bench("small")["sweep"] is None
    assert sizes(bench("small")) == ["small"]
    assert bench(sweep=True)["rows"] == []
    assert bench(arms=True)["arms"] == [{"size": "small"}]
    assert bench("tiny", arms=True)["arms"] == [{"size": "tiny"}]


def test_what_is_left_out_when_time_is_up_is_said(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, "LIMIT_S", -1.0)
    found = bench()
    assert sizes(found) == ["tiny"]
    assert found["sweep"] is None
    said = capsys.readouterr().err
    assert all(f"nlq bench --{rest}" in said for rest in ("size small", "size gpt2", "sweep"))
    assert sizes(bench("tiny", "small")) == ["tiny", "small"]
