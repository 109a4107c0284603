"""What GPUs can do at best, by the name that they give themselves."""

SEVERAL = " × "
"""Stands between the number of a run's devices and their name."""

PEAK_FLOPS_PER_S = {"H200": 989e12, "H100": 989e12, "A100": 312e12, "L40S": 362e12, "RTX 4090": 165e12}
"""Dense bfloat16 products with float32 sums, from NVIDIA's data sheets, of the fastest form of each name."""


def published_peak(device: str) -> float | None:
    """FLOP/s of a GPU by its name, or of several ("2 × NVIDIA H200"); None where it is not known."""
    number, times, _ = device.partition(SEVERAL)
    count = int(number) if times else 1
    return next((count * peak for name, peak in PEAK_FLOPS_PER_S.items() if name in device), None)
