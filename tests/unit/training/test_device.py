"""The device and what its process does with memory."""

import os
import platform
import subprocess
import sys

import pytest

FAULTS = """
import resource, torch
from nlq.training.device import open_device
open_device("cpu", 1)
for _ in range(16):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.ones(2**24)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another allocator")
def test_freed_memory_is_not_fetched_again() -> None:
    """64 MiB are 16,384 pages, which are fetched for the first tensors and not for the last."""
    environment = {**os.environ, "GLIBC_TUNABLES": "glibc.malloc.hugetlb=0"}
    done = subprocess.run([sys.executable, "-c", FAULTS], env=environment, capture_output=True, text=True, check=True)
    first, *_, last = map(int, done.stdout.split())
    assert first > 16_000
    assert last < 1_000
