"""A run on two devices is the run on one: the same batches, and the same numbers but for the order of a sum."""

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
print_curves(int(sys.argv[2]), int(sys.argv[3]))
"""

CASES = [
    (precision, kind, micro_batch)
    for precision, kind in (("float64", "adamw"), ("float32", "adamw"), ("bf16", "adamw"), ("float64", "muon"))
    for micro_batch in (None, 1)
]
STEPS = 6


def spec_of(precision: str, kind: str, micro_batch: int | None, compile_when: str = "never"):
    from nlq.core.optim import OptimSpec
    from nlq.core.spec import ModelSpec, RunSpec, TrainSpec, defaults_resolved
    from nlq.models.build import resolve

    shape = {"layers": 1, "heads": 2, "width": 16, "context": 8, "vocab": 32, "variant": "nonlinear_q"}
    train = {"batch_tokens": 32, "precision": precision, "micro_batch": micro_batch, "compile": compile_when}
    train |= {"steps": STEPS, "eval_every": 3, "eval_windows": 6}
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

    torch.set_num_threads(1)
    tokens = np.random.default_rng(0).integers(0, 32, 3000)
    data = WindowsData(tokens, tokens[:500], tokens[500:1000], context=8, rows=4, seed=1, eval_windows=6)
    model = build(spec.model)
    initialise(model, 1)
    return Engine(model, spec, torch.device("cpu")), data


def recorded(spec) -> list:
    """Numbers and hashes of a whole run, in the process that records it."""
    from nlq.training.checkpoint import TrainingState
    from nlq.training.loop import Run, proceed

    engine, data = begin(spec)
    rows = Rows()
    outcome = proceed(Run(engine, data, rows, spec), TrainingState())
    return [rows.numbers, [*rows.hashes, outcome.data_hash]]


def weights(engine) -> str:
    import hashlib

    return hashlib.sha256(b"".join(master.detach().numpy().tobytes() for master in engine.masters.values())).hexdigest()


def compiled_where(rank: int) -> list[str]:
    """What is said when the compiler works on rank 0 and nowhere else."""
    from unittest import mock

    from nlq.training.engine import Engine

    engine, data = begin(spec_of("float32", "adamw", None, "always"))
    told: list[str] = []
    engine = Engine(engine.model, engine.spec, engine.device, told.append)
    written = engine.model.hidden
    with mock.patch("torch.compile", lambda hidden, **_: None if rank else lambda x_BTD: hidden(x_BTD)):
        engine.update(data.batch(0), 0)
    assert engine._hidden == written
    return told


def print_curves(rank: int, devices: int) -> None:
    """What rank 0 records of every case, as it is with so many devices; from other ranks, their weights."""
    import torch

    from nlq.training import ranks
    from nlq.training.loop import follow

    if devices > 1:
        place = ranks.meeting_place() if rank == 0 else int(sys.stdin.readline())
        if rank == 0:
            print(place.port, flush=True)
        ranks.join(rank, devices, place, torch.device("cpu"), lambda: None)
    for case in CASES:
        spec = spec_of(*case)
        if rank == 0:
            print(json.dumps(recorded(spec)), flush=True)
        else:
            follow(*begin(spec), 0)
    engine, data = begin(spec_of("float32", "adamw", 1))
    follow(engine, data, 0)
    print(json.dumps(compiled_where(rank) if devices > 1 else []))
    print(weights(engine))
    print(ranks.all_say(rank == 0, torch.device("cpu")), ranks.all_say(True, torch.device("cpu")))
    ranks.leave()


def start(rank: int, devices: int) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", RANK, str(Path(__file__).parent), str(rank), str(devices)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


@pytest.fixture(scope="module")
def said() -> dict[str, list[str]]:
    """What one process alone said, and both ranks of two devices."""
    alone, first, second = start(0, 1), start(0, 2), start(1, 2)
    assert first.stdout is not None
    second_said = second.communicate(first.stdout.readline(), timeout=240)[0]
    names = {"alone": alone.communicate(timeout=240)[0], "first": first.communicate(timeout=240)[0]}
    return {name: text.splitlines() for name, text in {**names, "second": second_said}.items()}


@pytest.mark.parametrize("case", CASES, ids=str)
def test_two_devices_give_the_curve_of_one(said: dict[str, list[str]], case: tuple) -> None:
    one, two = (json.loads(said[name][CASES.index(case)]) for name in ("alone", "first"))
    rtol = {"float64": 1e-9, "float32": 1e-5, "bf16": 1e-2}[case[0]] if case[1] == "adamw" else 1e-5
    np.testing.assert_allclose(two[0], one[0], rtol=rtol)
    assert len(one[0]) == 2 * STEPS + 2 * 3
    assert two[1] == one[1], "the same batches"


def test_both_devices_have_the_same_bits(said: dict[str, list[str]]) -> None:
    assert said["first"][-2] == said["second"][-2]


def test_compiled_code_is_used_by_all_devices_or_by_none(said: dict[str, list[str]]) -> None:
    first, second = (json.loads(said[name][-3]) for name in ("first", "second"))
    assert first == ["not compiled: another device of this run cannot use it"]
    assert second == ["not compiled: 'NoneType' object is not callable"]


def test_a_verdict_is_that_of_all_devices(said: dict[str, list[str]]) -> None:
    assert said["first"][-1] == said["second"][-1] == "False True"
