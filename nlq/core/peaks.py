"""What GPUs can do at best, by the name that they give themselves."""

PEAK_FLOPS_PER_S = {"H200": 989e12, "H100": 989e12, "A100": 312e12, "L40S": 362e12, "RTX 4090": 165e12}
"""Dense bfloat16 products with float32 sums, from NVIDIA's data sheets, of the fastest form of each name."""


def published_peak(device: str) -> float | None:
    """FLOP/s of a GPU by its name; None where it is not known."""
    return next((peak for name, peak in PEAK_FLOPS_PER_S.items() if name in device), None)
