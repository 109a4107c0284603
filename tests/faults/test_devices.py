"""Rows 8 and 9: no two runs on one GPU unasked, and no run where the last one's memory is not back yet."""

import importlib.util
import itertools
import json
import sys
import time
from pathlib import Path

import pytest

from nlq.core.document import parse
from nlq.core.launch import Process, Slot
from nlq.core.run import CodeState, Provenance, State
from nlq.core.spec import defaults_resolved
from nlq.core.sweep import expand
from nlq.runners import _nvml
from nlq.runners._gpus import gpu_of
from nlq.runners._locks import SlotLocks
from nlq.runners._packing import CONTEXT_BYTES, Packing
from nlq.scheduler import Place, Scheduler
from nlq.store.devices import DeviceLedger
from nlq.store.queue import Counts, Queue
from nlq.store.reader import Reader

_SPEC = importlib.util.spec_from_file_location(
    "nlq_fake_gpus", Path(__file__).parents[1] / "unit" / "runners" / "fake_gpus.py"
)
fake = sys.modules.setdefault(_SPEC.name, importlib.util.module_from_spec(_SPEC))
_SPEC.loader.exec_module(fake)

GB = 10**9
HERE = Process("host", "boot", 1, "10")


class FakeHandle:
    """A run that ends when the runner says so."""

    def __init__(self, runner, launch, attempt, pid) -> None:
        self.runner, self.slot, self.attempt = runner, launch.slot.name, attempt
        self.process = Process("host", "boot", pid, str(pid))
        self.code: int | None = None
        self.looks = 0

    def poll(self) -> int | None:
        self.looks += 1
        if self.code is None and self.looks > self.runner.lasts:
            self.end(State.COMPLETED)
        return self.code

    def end(self, state: State, code: int = 0) -> None:
        if self.code is None:
            self.code = code
            self.runner.queue.finish(self.attempt, state)
            self.runner.on_end(self)

    def ask_to_stop(self) -> None:
        self.end(State.CANCELLED)

    def stop(self, grace_s: float) -> None:
        self.end(State.CANCELLED, -9)


class FakeRunner:
    """Runs that hold memory of the GPU that their environment shows, for as many looks as `lasts`."""

    def __init__(self, queue, machine, lasts: int = 1, holds_gb: float = 10) -> None:
        self.queue, self.machine, self.lasts, self.holds_gb = queue, machine, lasts, holds_gb
        self.pids, self.handles, self.late = itertools.count(1000), [], False
        self.lands_on = lambda uuid: uuid
        self.most: dict[str, int] = {}

    def warm(self) -> bool:
        return True

    def start(self, launch):
        attempt = self.queue.order(launch.arguments[launch.arguments.index("--token") + 1]).attempt
        handle = FakeHandle(self, launch, attempt, next(self.pids))
        uuids = [self.lands_on(uuid) for uuid in launch.slot.environment["CUDA_VISIBLE_DEVICES"].split(",")]
        for uuid in uuids:
            self.machine.hold(self.index(uuid), handle.process.pid, self.holds_gb)
        told = Provenance("host", "NVIDIA Fake", 1, "0", "0", "0", None, None, device_uuid="+".join(uuids))
        self.queue.started(attempt, told)
        self.handles.append(handle)
        for gpu, pids in self.machine.used.items():
            self.most[gpu] = max(self.most.get(gpu, 0), len(pids))
        return handle

    def on_end(self, handle) -> None:
        for gpu in self.machine.found:
            self.machine.release(gpu.index, handle.process.pid, late=self.late)
        with self.queue.db.conn:
            self.queue.db.execute(
                "UPDATE attempts SET peak_memory_bytes = ? WHERE attempt = ?",
                [int(self.holds_gb * GB) - CONTEXT_BYTES, handle.attempt],
            )

    def adopt(self, process):
        raise AssertionError("nothing to adopt")

    def index(self, uuid: str) -> int:
        return next(gpu.index for gpu in self.machine.found if gpu.uuid == uuid)


class Hall:
    """A database with some runs, GPUs, and a scheduler over them."""

    def __init__(
        self, folder: Path, runs: int, gpus: int, per_device: int = 1, arms: str = "{a: {}}", **options
    ) -> None:
        self.db, self.said = folder / "runs.db", []
        self.queue, self.machine, self.clock = Queue(self.db), fake.FakeGpus(gpus), fake.Clock()
        sweep = expand(
            parse(f"{{name: s, arms: {arms}, seeds: {list(range(runs))}}}", "s.yaml", Path()), defaults_resolved
        )
        self.queue.enqueue(sweep, {run.key: Counts(1, 1, 1) for run in sweep.runs}, CodeState("d", None, None))
        self.ids = [run.key[:12] for run in sweep.runs]
        self.runner = FakeRunner(self.queue, self.machine, **options)
        self.slots = [
            Slot(f"{gpu.uuid}#{k}" if per_device > 1 else gpu.uuid, "cuda:0", 1, {"CUDA_VISIBLE_DEVICES": gpu.uuid})
            for k in range(1, per_device + 1)
            for gpu in self.machine.found
        ]
        ledger = DeviceLedger(self.queue, "s", HERE)
        gate = Packing(self.machine, ledger, self.said.append, SlotLocks(folder), self.clock)
        place = Place(self.db, folder, folder)
        self.scheduler = Scheduler(
            self.queue, self.runner, self.slots, "s", place, HERE, lambda _: True, lambda: None, gate=gate
        )

    def look(self, times: int = 1) -> None:
        for _ in range(times):
            self.scheduler._look()
            self.clock.now += 0.05

    def states(self) -> dict[State, int]:
        return self.queue.states("s")


@pytest.fixture
def hall(tmp_path: Path):
    halls = []

    def make(**options) -> Hall:
        halls.append(Hall(tmp_path, **options))
        return halls[-1]

    yield make
    for one in halls:
        one.queue.close()


def test_8_twenty_launches_within_a_second_never_share_a_gpu(hall) -> None:
    h = hall(runs=20, gpus=4)
    began = time.monotonic()
    while len(h.runner.handles) < 20:
        h.look()
    assert time.monotonic() - began < 20
    h.look(3)
    assert h.states() == {State.COMPLETED: 20}
    assert h.runner.most == {gpu.uuid: 1 for gpu in h.machine.found}


def test_8_slots_of_one_gpu_share_it_when_asked(hall) -> None:
    h = hall(runs=20, gpus=2, per_device=3, lasts=3)
    while h.states().get(State.COMPLETED, 0) < 20:
        h.look()
    assert max(h.runner.most.values()) == 3


TWO_DEVICES = "{a: {}, b: {train.devices: 2, model.layers: 2}}"


@pytest.mark.parametrize("per_device", [1, 2])
def test_8_a_run_of_two_devices_shares_none_of_them(hall, per_device: int) -> None:
    h = hall(runs=5, gpus=3, per_device=per_device, lasts=3, arms=TWO_DEVICES)
    while h.states().get(State.COMPLETED, 0) < 10:
        h.look()
    for handle in h.runner.handles:
        names = handle.slot.split("+")
        assert len({gpu_of(name) for name in names}) == len(names)
    assert sorted(handle.slot.count("+") for handle in h.runner.handles) == [0] * 5 + [1] * 5
    assert max(h.runner.most.values()) <= per_device
    assert not h.said


def test_8_runs_behind_one_of_two_devices_wait_until_it_has_them(hall) -> None:
    h = hall(runs=2, gpus=2, lasts=5, arms="{a: {}, b: {train.devices: 2, model.layers: 2}, c: {model.layers: 3}}")
    h.queue.prioritise([h.ids[4], h.ids[5]], -1)
    h.look()
    h.runner.handles[0].end(State.COMPLETED)
    h.look(3)
    assert len(h.runner.handles) == 2, "one GPU is free, and nothing passes by the run that waits for two"
    while h.states().get(State.COMPLETED, 0) < 6:
        h.look()
    assert [handle.slot.count("+") for handle in h.runner.handles] == [0, 0, 1, 1, 0, 0]


def test_8_a_run_of_more_devices_than_there_are_is_left_to_others(hall) -> None:
    h = hall(runs=2, gpus=1, per_device=2, arms=TWO_DEVICES)
    h.scheduler.run()
    assert h.states() == {State.COMPLETED: 2, State.QUEUED: 2}


def test_8_two_devices_that_are_not_those_of_their_slots_are_noted(hall) -> None:
    h = hall(runs=1, gpus=3, lasts=100, arms="{a: {train.devices: 2}}")
    h.runner.lands_on = lambda uuid: h.machine.found[2 if uuid == h.machine.found[1].uuid else 0].uuid
    h.look()
    h.clock.now += 10
    h.look(2)
    reader = Reader(h.db)
    (run,) = reader.runs()
    (mismatch,) = [e["message"] for e in reader.events(run.run_id) if e["kind"] == "device mismatch"]
    assert h.machine.found[1].uuid in mismatch
    assert h.machine.found[2].uuid in mismatch


def test_8_two_runs_that_report_one_gpu_are_not_both_kept(hall) -> None:
    h = hall(runs=2, gpus=2, lasts=100)
    h.runner.lands_on = lambda uuid: h.machine.found[0].uuid
    h.look(2)
    first, second = h.runner.handles
    assert (first.code, second.code) == (None, -9)
    assert h.states() == {State.RUNNING: 1, State.FAILED: 1}
    reader = Reader(h.db)
    (failed,) = reader.runs([State.FAILED])
    assert failed.failure_class == "device_error"
    assert f"attempt {first.attempt} trains too" in failed.failure_message
    kinds = [event["kind"] for event in reader.events(failed.run_id)]
    assert kinds.count("device mismatch") == 1
    assert kinds[-1] == "failed"


def test_8_a_run_alone_on_another_gpu_than_its_slots_goes_on_and_the_event_says_so_once(hall) -> None:
    h = hall(runs=1, gpus=2, lasts=100)
    h.runner.lands_on = lambda uuid: h.machine.found[1].uuid
    h.look()
    h.clock.now += 10
    h.look(2)
    h.clock.now += 10
    h.look(2)
    assert h.states() == {State.RUNNING: 1}
    reader = Reader(h.db)
    (run,) = reader.runs()
    mismatches = [e["message"] for e in reader.events(run.run_id) if e["kind"] == "device mismatch"]
    assert len(mismatches) == 1
    assert all(gpu.uuid in mismatches[0] for gpu in h.machine.found)


def test_8_a_second_scheduler_of_the_database_leaves_taken_gpus_alone(hall, tmp_path: Path) -> None:
    h = hall(runs=4, gpus=2, lasts=100)
    h.look()
    other = Packing(h.machine, DeviceLedger(h.queue, None, HERE), h.said.append, SlotLocks(tmp_path / "elsewhere"))
    assert not list(other.free(h.slots, {}))


@pytest.mark.parametrize(
    ("visible", "uuid"),
    [("GPU-ab", "GPU-ab-01"), ("", "GPU-ab-01"), ("MIG-ab-01", "MIG-ab-01"), ("MIG-cd-02", "GPU-ab-01")],
)
def test_8_a_process_tells_the_uuid_that_cuda_gave_it_as_nvml_writes_it(visible: str, uuid: str) -> None:
    from nlq.training.device import _uuid

    assert _uuid("ab-01", visible) == uuid


def test_9_a_slot_waits_until_the_memory_of_its_last_run_is_back(hall) -> None:
    h = hall(runs=2, gpus=1, lasts=3, holds_gb=20)
    h.runner.late = True
    h.look(20)
    assert h.states() == {State.COMPLETED: 1, State.QUEUED: 1}
    h.machine.settle()
    h.look()
    assert h.states() == {State.COMPLETED: 1, State.RUNNING: 1}


def test_9_packing_goes_by_what_the_sweep_was_measured_to_need(hall) -> None:
    h = hall(runs=6, gpus=1, per_device=4, lasts=5, holds_gb=35)
    while h.states().get(State.COMPLETED, 0) < 6:
        h.look()
    assert max(h.runner.most.values()) == 2
    firsts = [handle.attempt for handle in h.runner.handles[:2]]
    events = Reader(h.db).db.execute(
        "SELECT attempt, kind FROM events WHERE kind IN ('claimed', 'completed') ORDER BY event"
    )
    assert events.fetchall()[:3] == [(firsts[0], "claimed"), (firsts[0], "completed"), (firsts[1], "claimed")]


def test_9_other_sweeps_and_the_cpu_measure_nothing_for_this_one(hall) -> None:
    h = hall(runs=1, gpus=1)
    h.look(4)
    assert h.states() == {State.COMPLETED: 1}
    ledger = DeviceLedger(h.queue, "s", HERE)
    assert ledger.largest_peak_bytes() == 10 * GB - CONTEXT_BYTES
    assert DeviceLedger(h.queue, "another", HERE).largest_peak_bytes() is None
    assert DeviceLedger(h.queue, None, HERE).largest_peak_bytes() == 10 * GB - CONTEXT_BYTES
    with h.queue.db.conn:
        h.queue.db.execute("UPDATE attempts SET device_uuid = NULL")
    assert ledger.largest_peak_bytes() is None


def test_9_a_gpu_of_other_people_is_left_alone_until_it_is_free(hall) -> None:
    h = hall(runs=6, gpus=2)
    h.machine.hold(0, 7, 75)
    h.look(8)
    assert {gpu_of(handle.slot) for handle in h.runner.handles} == {h.machine.found[1].uuid}
    assert len(h.said) == 1
    h.machine.release(0, 7)
    h.look(8)
    assert h.states() == {State.COMPLETED: 6}


@pytest.mark.parametrize(
    ("arguments", "inherited", "message", "hint"),
    [
        (["--gpus", "7"], None, "--gpus 7: no such GPU here", "--gpus 0  NVIDIA Fake"),
        (["--gpus", "1"], "0", "hidden by CUDA_VISIBLE_DEVICES=0", "--gpus 0"),
        (["--gpus", "0", "--slots", "1"], None, "--slots 1 asks for the CPU", "--gpus 0 --per-device 1"),
        (["--gpus", "0,0"], None, "named twice", "--per-device 2"),
        (["--per-device", "0"], None, "--per-device 0", "--per-device 2"),
    ],
)
@pytest.mark.parametrize("also", [[], ["--dry-run"]])
def test_a_wrong_gpus_is_one_screen_and_leaves_nothing(
    nlq, monkeypatch, tmp_path, arguments, inherited, message, hint, also
) -> None:
    monkeypatch.setattr(_nvml, "machine", lambda: fake.FakeGpus(2))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if inherited is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", inherited)
    done = nlq("sweep", "no-such.yaml", *arguments, *also)
    assert done.code == 2
    assert message in done.err
    assert hint in done.err
    assert len(done.err.splitlines()) < 20
    assert "Traceback" not in done.err
    assert not list(tmp_path.iterdir())


def test_without_a_gpu_asking_for_one_says_so(nlq, monkeypatch) -> None:
    monkeypatch.setattr(_nvml, "machine", lambda: fake.FakeGpus(0, lack="no NVIDIA driver: not found"))
    done = nlq("sweep", "no-such.yaml", "--gpus", "0")
    assert done.code == 2
    assert "no GPU here (no NVIDIA driver" in done.err


def test_doctor_shows_gpus_their_memory_who_uses_them_and_what_to_do(nlq, monkeypatch) -> None:
    machine = fake.FakeGpus(3)
    machine.hold(0, 2**22 + 1, 70)
    machine.faults[machine.found[1].uuid] = "GPU is lost"
    monkeypatch.setattr(_nvml, "machine", lambda: machine)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    found = {f["what"]: f for f in json.loads(nlq("doctor", "--json").out)}
    assert "10.0 GB of 80.0 GB free" in found["GPU 0"]["found"]
    assert "process 4194305 holds 70.0 GB" in found["GPU 0"]["found"]
    assert "--gpus" in found["GPU 0"]["remedy"]
    assert "GPU is lost" in found["GPU 1"]["found"]
    assert "hidden" in found["GPU 2"]["found"]
