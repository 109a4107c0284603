"""How busy other programs keep the processors while something is measured."""

import os
import time

import psutil

WORKING = ("user", "nice", "system", "irq", "softirq", "steal")
"""Columns of a processor's times in which it works, for programs or for other virtual machines."""


class Others:
    """A context. `share` is then what others took of the processors that this process may use, from 0 to 1.

    Processes that this one has started and waited for inside the context are not others.
    """

    share = 0.0

    def __enter__(self) -> "Others":
        self._began, self._working_s, self._own_s = time.monotonic(), _working_s(), _own_s()
        return self

    def __exit__(self, *_: object) -> None:
        there_s = (time.monotonic() - self._began) * len(_processors())
        others_s = (_working_s() - self._working_s) - (_own_s() - self._own_s)
        self.share = min(1.0, max(0.0, others_s / there_s))


def _processors() -> list[int]:
    """Numbers of the processors that this process may use: all, where the system does not tell."""
    every = range(len(psutil.cpu_times(percpu=True)))
    allowed = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else every
    return sorted(set(allowed) & set(every)) or list(every)


def _working_s() -> float:
    times = psutil.cpu_times(percpu=True)
    return sum(getattr(times[number], name, 0.0) for number in _processors() for name in WORKING)


def _own_s() -> float:
    return sum(os.times()[:4])
