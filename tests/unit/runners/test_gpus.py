"""Which GPUs an inherited CUDA_VISIBLE_DEVICES and --gpus leave, and what the slots on them are called."""

import pytest

from nlq.core.errors import NlqError
from nlq.core.launch import Slot, join_slots, slot_names
from nlq.runners import _nvml
from nlq.runners._gpus import gpu_of, is_packed, visible
from nlq.runners._slots import cores, device_count, slots


def full(text: str) -> str:
    """G0 and M0 stand for UUIDs: of a GPU, or of an instance of GPU 3."""
    numbers = [("G", "GPU", 0), ("M", "MIG", 64)]
    for letter, word, base in numbers:
        for i in range(4):
            text = text.replace(f"{letter}{i}", f"{word}-{base + i:02x}000000-0000-4000-8000-00000000000{base + i}")
    return text


@pytest.fixture
def machine(fake, monkeypatch):
    """GPUs 0 to 2, and GPU 3 split into two instances."""
    found = fake.FakeGpus(4)
    found.split(3, 2)
    monkeypatch.setattr(_nvml, "machine", lambda: found)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return found


@pytest.mark.parametrize(
    ("value", "allowed"),
    [
        (None, "G0 G1 G2 M0 M1"),
        ("", ""),
        (" ", ""),
        ("-1", ""),
        ("0", "G0"),
        ("2,0", "G2 G0"),
        (" 2 , 0 ", "G2 G0"),
        ("0,-1,1", "G0"),
        ("0,9,1", "G0"),
        ("9", ""),
        ("0,0", ""),
        ("1,0,1", ""),
        ("0,", "G0"),
        (",0", ""),
        ("+1", "G1"),
        ("1gpu,2ampere", "G1 G2"),
        ("NoDevFiles", ""),
        ("void", ""),
        ("3", "M0 M1"),
        ("G1", "G1"),
        ("G1,G0", "G1 G0"),
        ("G1, G0", "G1 G0"),
        ("GPU-01", "G1"),
        ("GPU-0", ""),
        ("GPU-", ""),
        ("GPU-02,GPU-00", "G2 G0"),
        ("GPU-02,GPU-ff,GPU-00", "G2"),
        ("GPU-01,G1", ""),
        ("GPU-01,0", "G1"),
        ("0,GPU-01", "G0"),
        ("gpu-01", ""),
        ("M1", "M1"),
        ("M1,M0", "M1 M0"),
        ("MIG-40", "M0"),
        ("MIG-4", ""),
        ("M0,M0", ""),
        ("M0,G0", "M0"),
        ("MIG-G3/2/0", "M1"),
        ("G3", "M0 M1"),
    ],
)
def test_cuda_visible_devices_is_read_as_cuda_reads_it(machine, value, allowed):
    found = visible(None if value is None else full(value), machine.gpus())
    assert [gpu.uuid for gpu in found] == full(allowed).split()


def test_every_gpu_is_a_slot_whose_child_sees_it_by_uuid(machine):
    found = slots()
    assert [slot.name for slot in found] == full("G0 G1 G2 M0 M1").split()
    for slot in found:
        assert slot.device == "cuda:0"
        assert slot.environment == {"CUDA_VISIBLE_DEVICES": slot.name, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
        assert slot.threads == max(1, cores() // 5)


@pytest.mark.parametrize(
    ("asked", "inherited", "names"),
    [
        ("2", None, "G2"),
        ("2,0", None, "G2 G0"),
        (" 2 , GPU-00 ", None, "G2 G0"),
        ("3", None, "M0 M1"),
        ("MIG-41", None, "M1"),
        ("3", "M1", "M1"),
        ("2", "2,0", "G2"),
    ],
)
def test_gpus_chooses(machine, monkeypatch, asked, inherited, names):
    if inherited is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", full(inherited))
    assert [slot.name for slot in slots(gpus=asked)] == full(names).split()


def test_slots_that_share_a_gpu_differ_in_name_and_spread_first(machine):
    names = [slot.name for slot in slots(gpus="0,1", per_device=3)]
    assert len(set(names)) == 6
    assert [gpu_of(name) for name in names] == full("G0 G1 G0 G1 G0 G1").split()
    assert all(map(is_packed, names))
    assert not any(map(is_packed, (slot.name for slot in slots(gpus="0", per_device=1))))


@pytest.mark.parametrize("options", [{"gpus": "none"}, {"cpu_slots": 1}, {"cpu_slots": 1, "gpus": "none"}])
def test_the_cpu_is_there_for_the_asking(machine, options):
    found = slots(**options)
    assert {slot.device for slot in found} == {"cpu"}
    assert {gpu_of(slot.name) for slot in found} == {None}
    assert all(slot.environment == {"CUDA_VISIBLE_DEVICES": ""} for slot in found)


MISTAKES = [
    ({"gpus": "7"}, None, "no such GPU", "--gpus 0  NVIDIA Fake"),
    ({"gpus": "0,7"}, None, "no such GPU", "--gpus 2 "),
    ({"gpus": ""}, None, "no such GPU", "--gpus 0 "),
    ({"gpus": "GPU-ff"}, None, "no such GPU", "--gpus 0 "),
    ({"gpus": "GPU-0"}, None, "several GPUs begin so", "--gpus 0 "),
    ({"gpus": "0,0"}, None, "named twice", "--per-device 2"),
    ({"gpus": "0,GPU-00"}, None, "named twice", "--per-device 2"),
    ({"gpus": "1"}, "0,2", "hidden by CUDA_VISIBLE_DEVICES=0,2", "--gpus 0,2"),
    ({"gpus": "1"}, "", "hidden by CUDA_VISIBLE_DEVICES=", "unset CUDA_VISIBLE_DEVICES"),
    ({"gpus": "0", "cpu_slots": 1}, None, "--slots 1 asks for the CPU", "--gpus 0 --per-device 1"),
    ({"gpus": "none", "per_device": 2}, None, "--gpus none asks for the CPU", "--per-device 2"),
    ({"cpu_slots": 1, "per_device": 2}, None, "--slots 1 asks for the CPU", "--per-device 2"),
    ({"per_device": 0}, None, "--per-device 0", "--per-device 2"),
    ({"per_device": 2}, "", "no GPU here", "--slots N"),
]


@pytest.mark.parametrize(("options", "inherited", "message", "hint"), MISTAKES)
def test_mistakes_name_the_nearest_right_thing(machine, monkeypatch, options, inherited, message, hint):
    if inherited is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", inherited)
    with pytest.raises(NlqError) as error:
        slots(**options)
    assert message in error.value.message
    assert hint in error.value.hint


def test_without_gpus_the_cpu_trains_and_asking_for_one_is_a_mistake(fake, monkeypatch):
    monkeypatch.setattr(_nvml, "machine", lambda: fake.FakeGpus(0, lack="no NVIDIA driver: not found"))
    assert {slot.device for slot in slots()} == {"cpu"}
    with pytest.raises(NlqError, match=r"no GPU here.*no NVIDIA driver"):
        slots(gpus="0")


def test_a_gpu_that_is_to_be_split_but_is_not_takes_no_run(machine):
    machine.split(2, 0)
    assert [slot.name for slot in slots()] == full("G0 G1 M0 M1").split()
    with pytest.raises(NlqError, match="MIG mode and has no instances"):
        slots(gpus="2")


def gpu_slot(name: str, threads: int = 2) -> Slot:
    return Slot(
        name, "cuda:0", threads, {"CUDA_VISIBLE_DEVICES": gpu_of(name) or "", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    )


def test_slots_are_joined_for_a_run_of_several_devices():
    joined = join_slots([gpu_slot("GPU-b#1"), gpu_slot("GPU-a#2")])
    assert (joined.name, joined.device, joined.threads) == ("GPU-b#1+GPU-a#2", "cuda:0", 4)
    assert joined.environment == {"CUDA_VISIBLE_DEVICES": "GPU-b,GPU-a", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    assert slot_names(joined.name) == ["GPU-b#1", "GPU-a#2"]
    assert join_slots([gpu_slot("GPU-a")]) == gpu_slot("GPU-a")
    cpu = [Slot(f"cpu:{index}", "cpu", 1, {"CUDA_VISIBLE_DEVICES": ""}) for index in range(2)]
    assert join_slots(cpu) == Slot("cpu:0+cpu:1", "cpu", 2, {"CUDA_VISIBLE_DEVICES": ""})


@pytest.mark.parametrize(
    ("names", "count"),
    [
        (["cpu:0", "cpu:1"], 2),
        (["GPU-a", "GPU-b"], 2),
        (["GPU-a#1", "GPU-b#1", "GPU-a#2", "GPU-b#2"], 2),
        (["MIG-a", "MIG-b"], 1),
    ],
)
def test_how_many_devices_a_run_can_have(names, count):
    assert device_count([gpu_slot(name) for name in names]) == count
