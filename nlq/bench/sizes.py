"""The models that `nlq bench` measures, and the arithmetic that this machine trains them in."""

from pathlib import Path
from typing import NamedTuple

from nlq.core.errors import NlqError, nearest
from nlq.core.optim import OptimSpec
from nlq.core.spec import ModelSpec, RunSpec, TrainSpec, defaults_resolved

FAST_BF16 = {"amx_bf16", "avx512_bf16", "bf16"}
"""Flags of /proc/cpuinfo (x86, and ARM's) of a CPU that multiplies bfloat16 faster than float32."""

ENDLESS = 10**9
"""Steps of a measured run: its learning rate hardly moves."""


class Size(NamedTuple):
    """A baseline's shape; `rows` are the sequences of a step, taken in one pass."""

    name: str
    layers: int
    heads: int
    width: int
    context: int
    rows: int
    vocab: int

    @property
    def tokens(self) -> int:
        """Tokens a step."""
        return self.rows * self.context


SIZES = {
    size.name: size
    for size in (
        Size("tiny", 4, 4, 128, 64, 12, 65),
        Size("small", 6, 6, 384, 256, 16, 50304),
        Size("gpt2", 12, 12, 768, 512, 1, 50304),
    )
}


def sizes_named(names: list[str]) -> list[Size]:
    """The sizes of these names, all where none is given. Raises NlqError."""
    for name in names:
        if name not in SIZES:
            raise NlqError(f"--size {name}: no such size; {nearest(name, SIZES)}", "--size " + ", ".join(SIZES))
    return [SIZES[name] for name in dict.fromkeys(names)] or list(SIZES.values())


def spec_of(size: Size, precision: str, variant: str = "baseline", *, compiled: bool = False) -> RunSpec:
    """The run that trains a variant at this size, resolved."""
    from nlq.models.build import resolve

    shape = {name: getattr(size, name) for name in ("layers", "heads", "width", "context", "vocab")}
    train = {"precision": precision, "compile": "always" if compiled else "never"}
    spec = RunSpec(
        model=ModelSpec.model_validate({**shape, "variant": variant}),
        optim=OptimSpec(lr_max=6e-4),
        train=TrainSpec.model_validate({**train, "steps": ENDLESS, "batch_tokens": size.tokens}),
    )
    return resolve(defaults_resolved(spec))


def precision_of(device: str) -> str:
    """bf16 where the device multiplies it faster than float32: GPUs, and CPUs with instructions for it."""
    return "bf16" if device != "cpu" or FAST_BF16 & _cpu_flags() else "float32"


def _cpu_flags() -> set[str]:
    try:
        return set(Path("/proc/cpuinfo").read_text(encoding="utf-8").split())
    except OSError:
        return set()
