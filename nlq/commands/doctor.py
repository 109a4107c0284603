"""`nlq doctor`: what was found on this machine, and what to do about each lack."""

import os
import platform
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from nlq import __version__
from nlq.commands._console import console, print_json
from nlq.core.errors import NlqError
from nlq.core.spec import DataSpec

if TYPE_CHECKING:
    from nlq.runners._gpus import Gpu, Reading

OK, LACK = "ok", "lack"


class Finding(NamedTuple):
    """One thing that was looked at; `remedy` is what to do about a lack."""

    what: str
    state: str
    found: str
    remedy: str = ""


def doctor(db: Path, cache: Path, *, as_json: bool) -> int:
    """Print every finding. Returns 1 where nlq cannot train here, 0 otherwise."""
    findings = [*_software(), *_devices(), *_tokenizers(), _folder("database", db.resolve().parent), _cache(cache)]
    if as_json:
        print_json([finding._asdict() for finding in findings])
    else:
        _print(findings)
    vital = ("torch", "database folder", "cache folder", "tokenizer bytes")
    return int(any(f.state == LACK and f.what in vital for f in findings))


def _print(findings: list[Finding]) -> None:
    out = console()
    for one in findings:
        out.print("✓" if one.state == OK else "✗", style="green" if one.state == OK else "yellow", end=" ")
        out.print(f"{one.what:<18} {one.found}", soft_wrap=True)
        if one.remedy:
            out.print(f"  {'':<18} → {one.remedy}", soft_wrap=True)


def _software() -> Iterator[Finding]:
    yield Finding(
        "nlq", OK, f"{__version__} on Python {platform.python_version()}, {platform.system()} {platform.machine()}"
    )
    try:
        import torch
    except (ImportError, OSError) as error:
        yield Finding("torch", LACK, str(error), 'pip install "torch>=2.11,<2.14"')
    else:
        yield Finding("torch", OK, f"{torch.__version__}, {torch.get_num_threads()} threads")


def _devices() -> Iterator[Finding]:
    from nlq.runners import _nvml
    from nlq.runners._gpus import visible
    from nlq.runners._slots import cores

    machine, inherited = _nvml.machine(), os.environ.get("CUDA_VISIBLE_DEVICES")
    places = [place for gpu in machine.gpus() for place in gpu.places]
    allowed = visible(inherited, machine.gpus())
    yield Finding("CPU", OK, f"{cores()} cores: that many slots unless --slots says otherwise")
    for place in places:
        yield _gpu(place, machine.read(place.uuid), hidden=place not in allowed)
    if not allowed:
        why = f"CUDA_VISIBLE_DEVICES={inherited!r} allows none" if places else machine.lack or "none"
        yield Finding("GPU", OK, f"{why}: runs train on the CPU")
    else:
        yield from _cuda()
    yield Finding("precision", OK, "float32 and float64 everywhere; bf16 products: " + _bf16())


def _gpu(gpu: "Gpu", now: "Reading", *, hidden: bool) -> Finding:
    """A GPU or MIG instance with its memory and the processes there."""
    from nlq.runners._gpus import gigabytes
    from nlq.runners._packing import UNMEASURED_SHARE

    what = str(gpu)
    if now.fault:
        return Finding(what, LACK, f"{gpu.name} {gpu.uuid} does not answer: {now.fault}", "nvidia-smi; see dmesg")
    memory = f"{gigabytes(now.free_bytes)} of {gigabytes(now.total_bytes)} free"
    users = "".join(f"; {_process_name(use.pid)} holds {gigabytes(use.memory_bytes)}" for use in now.processes)
    found = f"{gpu.name}, {memory}{users} ({gpu.uuid})"
    if hidden:
        return Finding(what, OK, f"{found}: hidden by CUDA_VISIBLE_DEVICES", "unset CUDA_VISIBLE_DEVICES to use it")
    is_full = now.free_bytes is not None and now.free_bytes < UNMEASURED_SHARE * (now.total_bytes or 0)
    remedy = "nlq leaves it alone until a run fits; wait, end what is yours, or choose others with --gpus"
    return Finding(what, LACK if is_full else OK, found, remedy if is_full else "")


def _process_name(pid: int) -> str:
    """Number, program and user of a process, as far as it is ours to know."""
    import psutil

    try:
        process = psutil.Process(pid)
        return f"process {pid} ({process.name()}, {process.username()})"
    except psutil.Error:
        return f"process {pid}"


def _cuda() -> Iterator[Finding]:
    import torch

    if torch.cuda.is_available():
        yield Finding("CUDA", OK, f"{torch.version.cuda}, {torch.cuda.get_device_name(0)}")
    else:
        remedy = "install a CUDA build of PyTorch, or a driver that fits it"
        yield Finding("CUDA", LACK, f"PyTorch {torch.__version__} cannot use the GPU", remedy)


def _bf16() -> str:
    flags = Path("/proc/cpuinfo").read_text(encoding="utf-8") if Path("/proc/cpuinfo").exists() else ""
    fast = [name for name in ("amx_bf16", "avx512_bf16") if name in flags]
    return f"this CPU has {' and '.join(fast)}" if fast else "slow on this CPU, which has no bf16 instructions"


def _tokenizers() -> Iterator[Finding]:
    from nlq.core import plugin

    for kind in plugin.kinds("nlq.data.tokenizers"):
        yield _try(f"tokenizer {kind}", lambda kind=kind: _load_tokenizer(kind))  # type: ignore[misc]


def _load_tokenizer(kind: str) -> str:
    from nlq.core import plugin

    return f"{plugin.load('nlq.data.tokenizers', kind).load(DataSpec(tokenizer=kind)).vocab:,} tokens"


def _try(what: str, look: Callable[[], str]) -> Finding:
    try:
        return Finding(what, OK, look())
    except NlqError as error:
        return Finding(what, LACK, error.message, error.hint)


def _cache(cache: Path) -> Finding:
    there = next(folder for folder in (cache, *cache.parents) if folder.exists())
    return _folder("cache", there)


def _folder(what: str, folder: Path) -> Finding:
    remedy = f"choose another with {'--db or NLQ_DB' if what == 'database' else 'NLQ_CACHE'}"
    try:
        with tempfile.TemporaryFile(dir=folder):
            return Finding(f"{what} folder", OK, f"{folder} can be written")
    except OSError as error:
        return Finding(f"{what} folder", LACK, f"{folder}: {error.strerror}", remedy)
