"""What other programs take of the processors, told from what a measurement itself takes."""

from collections import namedtuple
from types import SimpleNamespace

import pytest

from nlq.training import busy
from nlq.training.busy import Others

Times = namedtuple("Times", "user system idle steal")


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Three processors, of which we may use the first two. `passes` lets time go by."""
    now = SimpleNamespace(clock=0.0, working=[0.0, 0.0, 0.0], own=0.0)

    def passes(seconds: float, working: list[float], own: float) -> None:
        now.clock, now.own = now.clock + seconds, now.own + own
        now.working = [a + b for a, b in zip(now.working, working, strict=True)]

    now.passes = passes
    every = lambda percpu: [Times(work / 2, work / 4, 0.0, work / 4) for work in now.working]  # noqa: E731
    monkeypatch.setattr(busy.psutil, "cpu_times", every)
    monkeypatch.setattr(busy.os, "sched_getaffinity", lambda _: {0, 1}, raising=False)
    monkeypatch.setattr(busy.os, "times", lambda: (now.own, 0.0, 0.0, 0.0, now.clock))
    monkeypatch.setattr(busy.time, "monotonic", lambda: now.clock)
    return now


@pytest.mark.parametrize(
    ("working", "own", "share"),
    [
        ([2.0, 2.0, 0.0], 4.0, 0.0),
        ([2.0, 2.0, 2.0], 2.0, 0.5),
        ([0.0, 0.0, 2.0], 0.0, 0.0),
        ([1.0, 0.0, 0.0], 1.5, 0.0),
    ],
)
def test_the_share_of_others(machine: SimpleNamespace, working: list[float], own: float, share: float) -> None:
    with Others() as others:
        machine.passes(2.0, working, own)
    assert others.share == pytest.approx(share)


def test_this_machine_can_be_looked_at() -> None:
    with Others() as others:
        sum(range(10**6))
    assert 0 <= others.share <= 1
