"""Which slots may take a run: alone on a GPU, packed by measured memory, beside other people, after a late return."""

import os

import pytest

from nlq.core.launch import DeviceReport, Slot
from nlq.runners._locks import SlotLocks
from nlq.runners._packing import CHECK_S, CONTEXT_BYTES, ELSEWHERE_S, PATIENCE_S, Packing, Unguarded


class Bench:
    """A gate over fake GPUs, with what it said."""

    def __init__(self, fake, folder, gpus=1, per_device=1, total_gb=80):
        self.fake, self.gpus = fake, fake.FakeGpus(gpus, total_gb)
        self.ledger, self.clock, self.said = fake.FakeLedger(), fake.Clock(), []
        self.locks, self.busy, self.started = SlotLocks(folder), {}, 0
        self.gate = Packing(self.gpus, self.ledger, self.said.append, self.locks, self.clock)
        self.slots = [
            Slot(f"{fake.uuid_of(i)}#{k}" if per_device > 1 else fake.uuid_of(i), "cuda:0", 1)
            for k in range(1, per_device + 1)
            for i in range(gpus)
        ]

    def start(self, gigabytes=10):
        """Start a run in every slot that is free, and return their names."""
        names = []
        for slot in self.gate.free(self.slots, dict(self.busy)):
            self.started += 1
            self.busy[slot.name] = 100 + self.started
            self.gpus.hold(self.index(slot.name), 100 + self.started, gigabytes)
            names.append(slot.name)
        return names

    def end(self, name, *, late=False):
        self.gpus.release(self.index(name), self.busy.pop(name), late=late)

    def index(self, name):
        return next(gpu.index for gpu in self.gpus.found if name.startswith(gpu.uuid))


@pytest.fixture
def bench(fake, tmp_path):
    return lambda **options: Bench(fake, tmp_path, **options)


def test_one_run_a_gpu_unless_asked(bench):
    b = bench(gpus=4)
    assert len(b.start()) == 4
    assert b.start() == []
    b.end(b.slots[2].name)
    assert b.start() == [b.slots[2].name]


def test_a_slot_waits_until_its_memory_is_back(bench):
    b = bench()
    (name,) = b.start(40)
    b.end(name, late=True)
    for _ in range(5):
        assert b.start() == []
        b.clock.now += 1
    assert b.said == []
    b.gpus.settle()
    assert b.start() == [name]
    assert b.said == []


def test_a_slot_waits_while_the_process_that_ended_is_still_on_the_gpu(bench):
    b = bench()
    (name,) = b.start(1)
    b.start()
    b.busy.pop(name)
    assert b.start() == []
    b.clock.now += 10 * PATIENCE_S
    assert b.start() == []
    b.gpus.release(0, 101)
    assert b.start() == [name]


def test_after_all_patience_it_says_why_once_and_then_goes_by_what_is_free(bench):
    b = bench()
    (name,) = b.start(70)
    b.end(name, late=True)
    b.start()
    b.clock.now += PATIENCE_S + 1
    assert b.start() == []
    assert b.start() == []
    assert len(b.said) == 1
    assert "GPU 0" in b.said[0]
    b.gpus.settle()
    assert b.start() == [name]
    assert b.said[1:] == ["GPU 0 is free again"]


def test_memory_that_somebody_unseen_took_meanwhile_does_not_hold_a_slot_for_ever(bench):
    b = bench()
    b.gpus.hides_processes = True
    (name,) = b.start(5)
    b.end(name)
    b.gpus.lingering[b.slots[0].name] = 20 * 10**9
    assert b.start() == []
    b.clock.now += PATIENCE_S + 1
    assert b.start() == [name]


def test_memory_of_others_who_came_meanwhile_is_not_taken_for_the_last_runs(bench):
    b = bench()
    (name,) = b.start(10)
    b.gpus.hold(0, 7, 20)
    b.end(name)
    assert b.start() == [name]


def test_a_run_that_ends_between_two_looks_is_waited_for_too(bench):
    b = bench()
    (name,) = b.start(40)
    b.end(name, late=True)
    assert b.start() == []
    b.gpus.settle()
    assert b.start() == [name]


def test_runs_share_only_what_is_measured(bench):
    b = bench(per_device=4)
    assert len(b.start(30)) == 1
    assert b.start() == []
    b.ledger.peak_bytes = 30 * 10**9 - CONTEXT_BYTES
    assert len(b.start(30)) == 1
    assert b.start() == []
    assert b.said == []
    b.end(b.slots[0].name)
    assert b.start(30) == [b.slots[0].name]


def test_memory_that_neighbours_have_not_taken_yet_is_promised_to_them(bench):
    b = bench(per_device=8)
    b.ledger.peak_bytes = 25 * 10**9
    assert len(b.start(0)) == 3
    assert b.start(0) == []


def test_runs_spread_before_they_share(bench):
    b = bench(gpus=2, per_device=2)
    b.ledger.peak_bytes = 10**9
    assert [b.index(name) for name in b.start()] == [0, 1, 0, 1]


def test_a_gpu_full_of_other_peoples_work_is_left_alone_and_that_is_said_once(bench):
    b = bench(gpus=2)
    b.gpus.hold(0, 7, 70)
    assert [b.index(name) for name in b.start()] == [1]
    for _ in range(5):
        b.clock.now += 100
        assert b.start() == []
    assert len(b.said) == 1
    assert "GPU 0" in b.said[0]
    assert "process 7 holds 70.0 GB" in b.said[0]
    b.gpus.release(0, 7)
    assert [b.index(name) for name in b.start()] == [0]
    assert b.said[1:] == ["GPU 0 is free again"]


def test_beside_other_people_a_run_starts_where_it_fits(bench):
    b = bench()
    b.ledger.peak_bytes = 8 * 10**9
    b.gpus.hold(0, 7, 70)
    assert len(b.start(8)) == 1


def test_an_empty_gpu_takes_a_run_however_much_others_have_needed_elsewhere(bench):
    b = bench(total_gb=24)
    b.ledger.peak_bytes = 100 * 10**9
    assert len(b.start()) == 1


def test_what_this_process_holds_itself_is_no_obstacle(bench):
    b = bench()
    b.gpus.hold(0, os.getpid(), 60)
    assert len(b.start()) == 1
    b.end(b.slots[0].name)
    assert len(b.start()) == 1


def test_a_gpu_that_does_not_answer_takes_nothing(bench):
    b = bench(gpus=2)
    b.gpus.faults[b.slots[0].name] = "GPU is lost"
    assert [b.index(name) for name in b.start()] == [1]
    assert "GPU is lost" in b.said[0]
    assert b.start() == []
    assert len(b.said) == 1


def test_memory_that_cannot_be_read_allows_one_run(bench):
    b = bench(per_device=2)
    b.gpus.memory_is_readable = False
    b.ledger.peak_bytes = 10**9
    (name,) = b.start()
    assert b.start() == []
    assert "cannot be read" in b.said[0]
    b.end(name)
    assert b.start() == [name]


@pytest.mark.parametrize("word", ["", "#1"])
def test_a_slot_that_another_scheduler_of_the_database_uses_is_not_free(bench, word):
    b = bench()
    b.ledger.others = {b.slots[0].name + word: 7}
    assert b.start() == []
    b.clock.now += ELSEWHERE_S + 1
    assert b.start() == []
    assert b.said == ["GPU 0 is used by another nlq; waiting for it"]
    b.ledger.others = {}
    assert len(b.start()) == 1


def test_schedulers_of_different_databases_do_not_share_a_gpu(bench):
    one, two = bench(gpus=2), bench(gpus=2)
    one.slots = one.slots[:1]
    assert [one.index(name) for name in one.start()] == [0]
    assert [two.index(name) for name in two.start()] == [1]
    assert one.start() + two.start() == []
    one.end(one.slots[0].name)
    assert two.start() == []
    list(one.gate.free((), one.busy))
    assert [two.index(name) for name in two.start()] == [0]


def test_a_slot_that_no_run_was_left_for_is_given_back(bench):
    one, two = bench(), bench()
    offered = one.gate.free(one.slots, {})
    next(offered)
    assert two.start() == []
    offered.close()
    assert len(two.start()) == 1


def test_who_shares_and_who_does_not_exclude_each_other(bench):
    alone, packed = bench(), bench(per_device=2)
    packed.ledger.peak_bytes = 10**9
    assert len(packed.start()) == 2
    assert alone.start() == []
    for name in list(packed.busy):
        packed.end(name)
    list(packed.gate.free((), {}))
    assert len(alone.start()) == 1
    assert packed.start() == []


def test_adopted_runs_hold_their_gpu(bench):
    one, two = bench(), bench()
    list(one.gate.free(one.slots, {one.slots[0].name: 7}))
    assert two.start() == []


def test_without_a_folder_for_locks_runs_still_start(fake, tmp_path):
    assert len(Bench(fake, tmp_path / "gone").start()) == 1


def test_slots_of_the_cpu_need_no_guard():
    slots = [Slot(f"cpu:{i}", "cpu", 1) for i in range(3)]
    assert [s.name for s in Unguarded().free(slots, {"cpu:1": 5})] == ["cpu:0", "cpu:2"]
    assert not list(Unguarded().misplaced([1]))


def reports(fake, *found):
    """Attempts 1, 2, …: each a slot's suffix on GPU i, and the index of the GPU that its process found."""
    return [
        DeviceReport(n, fake.uuid_of(i) + suffix, fake.uuid_of(device), False)
        for n, (i, suffix, device) in enumerate(found, 1)
    ]


@pytest.mark.parametrize(
    ("found", "intruders", "noted"),
    [
        ([(0, "", 0), (1, "", 1)], [], []),
        ([(0, "", 0), (1, "", 0)], [2], [2]),
        ([(1, "", 0), (0, "", 0)], [1], [1]),
        ([(0, "", 2), (1, "", 2)], [2], [1, 2]),
        ([(0, "", 1)], [], [1]),
        ([(0, "#1", 0), (0, "#2", 0)], [], []),
        ([(0, "#1", 0), (1, "#1", 0)], [2], [2]),
        ([(0, "", 0), (0, "", 0)], [2], []),
    ],
)
def test_processes_that_share_a_gpu_unasked_are_found(bench, fake, found, intruders, noted):
    b = bench(gpus=3)
    b.ledger.reports = reports(fake, *found)
    assert [attempt for attempt, _ in b.gate.misplaced({1: None, 2: None})] == intruders
    assert [attempt for attempt, _ in b.ledger.notes] == noted
    assert not list(b.gate.misplaced({1: None, 2: None}))
    b.clock.now += CHECK_S
    assert [attempt for attempt, _ in b.gate.misplaced([])] == []
    assert [attempt for attempt, _ in b.gate.misplaced([1])] == [a for a in intruders if a == 1]


def test_instances_are_told_apart_in_every_form_that_cuda_gives(bench, fake):
    b = bench()
    b.gpus.split(0, 2)
    b.gate = Packing(b.gpus, b.ledger, b.said.append, b.locks, b.clock)
    one, two = (place.uuid for place in b.gpus.found[0].places)
    for first, second in ((one, two), (one.replace("MIG", "GPU"), two.replace("MIG", "GPU")), [fake.uuid_of(0)] * 2):
        b.clock.now += CHECK_S
        b.ledger.reports = [DeviceReport(1, one, first, False), DeviceReport(2, two, second, False)]
        assert not list(b.gate.misplaced([1, 2]))
        assert b.ledger.notes == []
    b.clock.now += CHECK_S
    b.ledger.reports = [DeviceReport(1, one, one, False), DeviceReport(2, two, one, False)]
    assert [attempt for attempt, _ in b.gate.misplaced([1, 2])] == [2]
