"""A run on two devices is the run on one: the same batches, and the same numbers but for the order of a sum.

So it is where both have the whole model, and where each has a part of it."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

RANK = """
import sys
sys.path.insert(0, sys.argv[1])
from test_ranks import print_curves
print_curves(int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
"""

KINDS = [("float64", "adamw"), ("float32", "adamw"), ("bf16", "adamw"), ("float64", "muon")]
WHOLE = [(*kind, micro_batch, True, False) for kind in KINDS for micro_batch in (None, 1)]
SHARDED = [
    *(("float64", "adamw", micro_batch, tied, True) for micro_batch in (None, 1) for tied in (True, False)),
    ("float64", "sgd", 1, True, True),
    ("float32", "adamw", None, True, True),
    *(("bf16", "adamw", 1, tied, True) for tied in (True, False)),
]
CASES = WHOLE + SHARDED
STEPS = 6
RESUMED = ["sharded, then whole", "whole, then sharded", "sharded, then sharded"]


def spec_of(
    precision: str,
    kind: str,
    micro_batch: int | None,
    tied: bool = True,
    sharded: bool = False,
    compile_when: str = "never",
):
    from nlq.core.optim import OptimSpec
    from nlq.core.spec import ModelSpec, RunSpec, TrainSpec, defaults_resolved
    from nlq.models.build import resolve

    shape = {"layers": 1, "heads": 2, "width": 16, "context": 8, "vocab": 32, "variant": "nonlinear_q", "tied": tied}
    train = {"batch_tokens": 32, "precision": precision, "micro_batch": micro_batch, "compile": compile_when}
    train |= {"devices": 2 if sharded else 1, "sharded": sharded, "steps": STEPS, "eval_every": 3, "eval_windows": 6}
    spec = RunSpec(
        model=ModelSpec.model_validate(shape),
        optim=OptimSpec(kind=kind, lr_max=1e-2, warmup_steps=2),
        train=TrainSpec.model_validate(train),
    )
    return resolve(defaults_resolved(spec))


class Rows:
    """A sink that keeps losses, norms, evaluations and the hashes of batches."""

    def __init__(self) -> None:
        self.numbers: list[float] = []
        self.hashes: list[str] = []

    def step(self, row) -> None:
        self.numbers += [row.loss_nats, row.grad_norm]

    def evaluation(self, row) -> None:
        self.numbers.append(row.loss_nats)
        self.hashes.append(row.data_hash)

    def flush(self) -> None:
        pass


def begin(spec):
    """An engine at step 0 and its data."""
    import torch

    from nlq.data.plan import WindowsData
    from nlq.models.build import build, initialise
    from nlq.training.engine import Engine
    from nlq.training.sharded import ShardedEngine

    torch.set_num_threads(1)
    tokens = np.random.default_rng(0).integers(0, 32, 3000)
    data = WindowsData(tokens, tokens[:500], tokens[500:1000], context=8, rows=4, seed=1, eval_windows=6)
    model = build(spec.model)
    initialise(model, 1)
    kind = ShardedEngine if spec.train.sharded and torch.distributed.is_initialized() else Engine
    return kind(model, spec, torch.device("cpu")), data


class StopAt3:
    """Asks for a checkpoint and an end before step 3."""

    def __init__(self, rows: Rows) -> None:
        self.rows = rows

    def stop(self) -> bool:
        return len(self.rows.numbers) >= 2 * 3 + 2

    def checkpoint(self) -> bool:
        return False


def recorded(rank: int, spec, rows: Rows, folder: Path | None = None, stop: bool = False):
    """The engine after a run, or its outcome in the process that records it; from the checkpoint in a folder."""
    from nlq.training.checkpoint import Checkpoints, TrainingState
    from nlq.training.loop import Run, follow, proceed
    from nlq.training.ranks import first_says

    engine, data = begin(spec.resolved(train={"steps": 3}) if rank and stop else spec)
    keeper = Checkpoints(folder, spec, 1, print) if folder else None
    first = first_says() if rank else None
    state = keeper.restore(engine, lambda step: first in (None, step)) if keeper else TrainingState()
    if rank:
        follow(engine, data, state.step)
        return engine
    first_says(state.step)
    outcome = proceed(Run(engine, data, rows, spec), state, keeper, StopAt3(rows) if stop else None)
    rows.hashes.append(outcome.data_hash)
    return engine


def resumed(rank: int, folder: Path, order: str) -> list[float]:
    """Numbers of a run that is interrupted, and goes on in the same or the other manner."""
    rows = Rows()
    for manner, stop in zip(order.split(", then "), (True, False), strict=True):
        recorded(rank, spec_of("float64", "adamw", 1, False, manner == "sharded"), rows, folder / order, stop)
    return rows.numbers


def kept(engine) -> list[int]:
    """Numbers of parameters, and of numbers in the memory that a rank keeps: weights, gradients, moments."""
    states = [value for of_one in engine.optimiser.state.values() for value in of_one.values() if value.dim()]
    sizes = []
    for tensors in (engine.masters.values(), [engine._gradients], states):
        memory = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() // t.itemsize for t in tensors}
        sizes.append(sum(memory.values()))
    return [sum(whole.numel() for whole in engine.model.parameters()), *sizes]


def weights(engine) -> str:
    import hashlib

    return hashlib.sha256(b"".join(master.detach().numpy().tobytes() for master in engine.masters.values())).hexdigest()


def compiled_where(rank: int) -> list[str]:
    """What is said when the compiler works on rank 0 and nowhere else."""
    from unittest import mock

    from nlq.training.engine import Engine

    engine, data = begin(spec_of("float32", "adamw", None, compile_when="always"))
    told: list[str] = []
    engine = Engine(engine.model, engine.spec, engine.device, told.append)
    written = engine.model.hidden
    with mock.patch("torch.compile", lambda hidden, **_: None if rank else lambda x_BTD: hidden(x_BTD)):
        engine.update(data.batch(0), 0)
    assert engine._hidden == written
    return told


def print_curves(rank: int, devices: int, folder: str) -> None:
    """What rank 0 records of every case, as it is with so many devices; from other ranks, their weights."""
    import torch

    from nlq.training import ranks

    if devices > 1:
        place = ranks.meeting_place() if rank == 0 else int(sys.stdin.readline())
        if rank == 0:
            print(place.port, flush=True)
        ranks.join(rank, devices, place, torch.device("cpu"), lambda: None)
    for case in CASES:
        rows = Rows()
        recorded(rank, spec_of(*case), rows)
        print(json.dumps([rows.numbers, rows.hashes]))
    for order in RESUMED:
        print(json.dumps(resumed(rank, Path(folder), order) if devices > 1 else []))
    print(json.dumps(kept(recorded(rank, spec_of(*SHARDED[0]), Rows()))))
    print(json.dumps(compiled_where(rank) if devices > 1 else []))
    print(weights(recorded(rank, spec_of("float32", "adamw", 1), Rows())))
    print(ranks.all_say(rank == 0, torch.device("cpu")), ranks.all_say(True, torch.device("cpu")))
    ranks.leave()


def start(rank: int, devices: int, folder: Path) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", RANK, str(Path(__file__).parent), str(rank), str(devices), str(folder)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """What one process alone said, and both ranks of two devices."""
    folder = tmp_path_factory.mktemp("checkpoints")
    alone, first, second = start(0, 1, folder), start(0, 2, folder), start(1, 2, folder)
    assert first.stdout is not None
    second_said = second.communicate(first.stdout.readline(), timeout=240)[0]
    names = {"alone": alone.communicate(timeout=240)[0], "first": first.communicate(timeout=240)[0]}
    return {name: text.splitlines() for name, text in {**names, "second": second_said}.items()}


@pytest.mark.parametrize("case", CASES, ids=str)
def test_two_devices_give_the_curve_of_one(said: dict[str, list[str]], case: tuple) -> None:
    one, two = (json.loads(said[name][CASES.index(case)]) for name in ("alone", "first"))
    rtol = {"float64": 1e-9, "float32": 1e-5, "bf16": 1e-2}[case[0]] if case[1] != "muon" else 1e-5
    np.testing.assert_allclose(two[0], one[0], rtol=rtol)
    assert len(one[0]) == 2 * STEPS + 2 * 3
    assert two[1] == one[1], "the same batches"


@pytest.mark.parametrize("order", RESUMED)
def test_a_run_goes_on_sharded_or_not(said: dict[str, list[str]], order: str) -> None:
    numbers = json.loads(said["first"][len(CASES) + RESUMED.index(order)])
    uninterrupted = json.loads(said["alone"][CASES.index(("float64", "adamw", 1, False, True))])[0]
    np.testing.assert_allclose(numbers, uninterrupted, rtol=1e-9)


def test_each_device_keeps_half_of_a_sharded_run(said: dict[str, list[str]]) -> None:
    whole, first, second = (json.loads(said[name][-4]) for name in ("alone", "first", "second"))
    params = whole[0]
    assert whole == [params, params, params, 2 * params]
    assert first == second == [params, params // 2, params // 2, params]


def test_both_devices_have_the_same_bits(said: dict[str, list[str]]) -> None:
    assert said["first"][-2] == said["second"][-2]


def test_compiled_code_is_used_by_all_devices_or_by_none(said: dict[str, list[str]]) -> None:
    first, second = (json.loads(said[name][-3]) for name in ("first", "second"))
    assert first == ["not compiled: another device of this run cannot use it"]
    assert second == ["not compiled: 'NoneType' object is not callable"]


def test_a_verdict_is_that_of_all_devices(said: dict[str, list[str]]) -> None:
    assert said["first"][-1] == said["second"][-1] == "False True"
