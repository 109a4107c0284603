"""Several devices for one run: a process each, its rank, with a share of every batch and the whole model or its part.

Without `join` there is one rank, which has the whole batch, and nothing is exchanged.
"""

import os
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from enum import IntEnum

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import TCPStore

from nlq.data.plan import Batch

HERE = "127.0.0.1"
POLL_S = 0.02
PATIENCE = timedelta(days=30)
"""The others wait while rank 0 evaluates or writes. That all still run is watched elsewhere, process by process."""


class Word(IntEnum):
    """What rank 0 tells the others to do with it."""

    UPDATE, EVALUATE, SAVE, END = range(4)


class PeerGoneError(Exception):
    """The exchange with the other ranks failed: one of them is gone, or the connection is."""


def meeting_place() -> TCPStore:
    """Where the ranks of a run find each other: a free port of this machine, open to nobody outside."""
    return TCPStore(HERE, 0, is_master=True, wait_for_workers=False, timeout=PATIENCE)


def join(rank: int, devices: int, place: TCPStore | int, device: torch.device, look: Callable[[], None]) -> None:
    """Join the other ranks at the meeting place, or at its port; rank 0 waits for all of them.

    `look` is called meanwhile and raises where it is no use to wait any longer.
    """
    place = TCPStore(HERE, place, is_master=False, timeout=PATIENCE) if isinstance(place, int) else place
    place.set(f"ready {rank}", "")
    while rank == 0 and not place.check([f"ready {other}" for other in range(devices)]):
        look()
        time.sleep(POLL_S)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo0" if sys.platform == "darwin" else "lo")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
    with peers():
        dist.init_process_group(backend, store=place, rank=rank, world_size=devices, timeout=PATIENCE)
    sum_up(torch.zeros(1, device=device))  # NCCL connects at the first exchange, and now all are here


def leave() -> None:
    """Be the only rank again."""
    if dist.is_initialized():
        dist.destroy_process_group()


def is_first() -> bool:
    """Whether this is rank 0, which evaluates, records and saves."""
    return not dist.is_initialized() or dist.get_rank() == 0


def share(batch: Batch) -> Batch:
    """The rows of a batch that this rank works on."""
    if not dist.is_initialized():
        return batch
    rows = len(batch.x_BT) // dist.get_world_size()
    first = rows * dist.get_rank()
    return Batch(*(tokens_BT[first : first + rows] for tokens_BT in batch))


def sum_up(*tensors: Tensor) -> None:
    """Replace tensors by their sums over all ranks, to the same bits on all. Raises PeerGoneError."""
    if dist.is_initialized():
        with peers():
            for tensor in tensors:
                dist.all_reduce(tensor)


def first_says(number: int = 0) -> int:
    """On every rank the number that rank 0 gives. Nobody waits for a device. Raises PeerGoneError."""
    said = torch.tensor(number)
    if dist.is_initialized():
        with peers():
            dist.broadcast(said, 0)
    return int(said)


def all_say(yes: bool, device: torch.device) -> bool:
    """Whether every rank says yes. Raises PeerGoneError."""
    noes = torch.tensor([0.0 if yes else 1.0], device=device)
    sum_up(noes)
    return not noes.item()


class peers:  # noqa: N801 - reads as a statement
    """Turns what PyTorch raises when a peer is gone into PeerGoneError, and no other error."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, dist.DistError) or (isinstance(error, RuntimeError) and "gloo" in str(error)):
            raise PeerGoneError(f"the devices of this run lost each other: {error}".splitlines()[0]) from error
