"""One contender in a process of its own, so that no other's settings or memory are its own.

`python -m nlq.bench._one ORDER` reads lines from its standard input and answers each with a line of JSON:

    make            builds and warms up                          {"how": "…"}
    go WORK COUNT   takes that many steps                        {"seconds": …}
    end             ends                                         {"peak_memory_bytes": …}
"""

import json
import os
import resource
import sys
import time
from pathlib import Path
from typing import Any

import torch

from nlq.bench.contenders import Order, Work, contender
from nlq.bench.sizes import Size
from nlq.training.device import return_freed_memory
from nlq.training.loop import READ_EVERY


class One:
    """A contender that has been made, and the number of each work's next step."""

    def __init__(self, order: Order) -> None:
        self.device, self.made = torch.device(order.device), contender(order)
        self.numbers = dict.fromkeys(self.made.works, 0)

    def go(self, work: str, count: int) -> float:
        """Seconds of that many steps, their numbers read as training reads them."""
        first = self.numbers[work]
        self.numbers[work] += count
        return seconds(self.made.works[work], range(first, first + count), self.device)


def seconds(work: Work, numbers: range, device: torch.device) -> float:
    """From a quiet device to a quiet device. Raises ArithmeticError where a number is not finite."""
    unread: list[torch.Tensor] = []
    _synchronise(device)
    began = time.perf_counter()
    for number in numbers:
        unread.append(work(number))
        if len(unread) == READ_EVERY[device.type]:
            _read(unread)
    _read(unread)
    _synchronise(device)
    return time.perf_counter() - began


def main() -> None:
    """Answer until the end, or until nobody asks any more."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what libraries print is no answer
    order = order_from(sys.argv[1])
    one: One | None = None
    for line in sys.stdin:
        word, *rest = line.split()
        if word == "make":
            one = One(order)
            for work in one.made.works:
                one.go(work, 1)
            _forget_peak(one.device)
            answer: dict[str, Any] = {"how": one.made.how()}
        elif word == "go" and one is not None:
            answer = {"seconds": one.go(rest[0], int(rest[1]))}
        else:
            answer = {"peak_memory_bytes": _peak(torch.device(order.device))}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
        if word == "end":
            return


def order_from(text: str) -> Order:
    """The order that `json.dumps(vars(order))` wrote."""
    fields = json.loads(text)
    return Order(**{**fields, "size": Size(*fields["size"])})


def _read(unread: list[torch.Tensor]) -> None:
    if unread and not bool(torch.stack(unread).isfinite().all()):
        raise ArithmeticError("a loss is not finite")
    unread.clear()


def _synchronise(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _forget_peak(device: torch.device) -> None:
    """Let the peak begin anew: building, trying and compiling are no part of a step."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        return
    return_freed_memory()
    if Path("/proc/self/clear_refs").exists():
        Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")


def _peak(device: torch.device) -> int:
    """Most memory at a time: of the device, or resident in this process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    status = Path("/proc/self/status")
    lines = status.read_text(encoding="utf-8").splitlines() if status.exists() else []
    kib = next((line.split()[1] for line in lines if line.startswith("VmHWM")), None)
    return 1024 * int(kib or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


if __name__ == "__main__":
    main()
