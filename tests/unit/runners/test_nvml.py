"""The driver's library: what it says, what it refuses, and that its absence is no error."""

from types import SimpleNamespace

import pynvml
import pytest

from nlq.runners import _nvml
from nlq.runners._energy import Meter
from nlq.runners._gpus import Use
from nlq.runners._nvml import Nvml

G0, G1, M0 = "GPU-00000000-aa", "GPU-11111111-bb", "MIG-22222222-cc"


def refuse(code):
    raise pynvml.NVMLError(code)


class Driver:
    """Two GPUs; the second is in MIG mode with one instance at its second place. Handles are UUIDs."""

    memory = SimpleNamespace(total=80, free=30)
    nvmlInit = staticmethod(lambda: None)  # noqa: N815
    nvmlDeviceGetCount = staticmethod(lambda: 2)  # noqa: N815

    def nvmlDeviceGetHandleByIndex(self, i):  # noqa: N802
        return (G0, G1)[i]

    def nvmlDeviceGetUUID(self, handle):  # noqa: N802
        return handle

    def nvmlDeviceGetName(self, handle):  # noqa: N802
        return "NVIDIA H200"

    def nvmlDeviceGetMigMode(self, handle):  # noqa: N802
        return [1, 1] if handle == G1 else refuse(pynvml.NVML_ERROR_NOT_SUPPORTED)

    def nvmlDeviceGetMaxMigDeviceCount(self, handle):  # noqa: N802
        return 7

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle, i):  # noqa: N802
        return M0 if i == 1 else refuse(pynvml.NVML_ERROR_NOT_FOUND)

    def nvmlDeviceGetGpuInstanceId(self, handle):  # noqa: N802
        return 9

    def nvmlDeviceGetComputeInstanceId(self, handle):  # noqa: N802
        return 0

    def nvmlDeviceGetMemoryInfo(self, handle):  # noqa: N802
        return self.memory

    millijoules = 5_000

    def nvmlDeviceGetTotalEnergyConsumption(self, handle):  # noqa: N802
        return self.millijoules if handle == G0 else refuse(pynvml.NVML_ERROR_NOT_SUPPORTED)

    def nvmlDeviceGetComputeRunningProcesses(self, handle):  # noqa: N802
        return [SimpleNamespace(pid=7, usedGpuMemory=20), SimpleNamespace(pid=8, usedGpuMemory=None)]

    def nvmlDeviceGetGraphicsRunningProcesses(self, handle):  # noqa: N802
        return [SimpleNamespace(pid=1, usedGpuMemory=5), SimpleNamespace(pid=7, usedGpuMemory=19)]


@pytest.fixture
def driver(monkeypatch):
    names = [name for name in vars(Driver) if name.startswith("nvml")]
    one = Driver()
    for name in names:
        monkeypatch.setattr(pynvml, name, getattr(one, name))
    return one


def test_gpus_and_instances_are_found(driver):
    first, second = Nvml().gpus()
    assert (first.uuid, first.name, first.index, first.instances) == (G0, "NVIDIA H200", 0, None)
    assert str(first) == "GPU 0"
    (instance,) = second.places
    assert (instance.uuid, instance.index, instance.legacy) == (M0, 1, f"MIG-{G1}/9/0")
    assert str(instance) == "GPU 1, MIG 1"


@pytest.mark.parametrize("uuid", [G0, M0])
def test_memory_and_processes_are_read(driver, uuid):
    nvml = Nvml()
    nvml.gpus()
    now = nvml.read(uuid)
    assert (now.total_bytes, now.free_bytes, now.fault) == (80, 30, "")
    assert set(now.processes) == {Use(7, 20), Use(8, None), Use(1, 5)}
    assert now.held_by({7, 8}) == 20


def test_memory_that_is_not_counted_is_unknown_and_not_zero(driver, monkeypatch):
    nvml = Nvml()
    nvml.gpus()
    monkeypatch.setattr(pynvml, "nvmlDeviceGetMemoryInfo", lambda _: refuse(pynvml.NVML_ERROR_NOT_SUPPORTED))
    assert nvml.read(G0).free_bytes is None
    assert nvml.read(G0).fault == ""


def test_a_gpu_that_is_lost_says_so(driver, monkeypatch):
    nvml = Nvml()
    nvml.gpus()
    monkeypatch.setattr(pynvml, "nvmlDeviceGetMemoryInfo", lambda _: refuse(pynvml.NVML_ERROR_GPU_IS_LOST))
    assert "lost" in nvml.read(G0).fault.lower()
    assert nvml.read("GPU-never-seen").fault


def test_a_gpu_that_cannot_be_opened_leaves_the_others(driver, monkeypatch):
    monkeypatch.setattr(
        pynvml, "nvmlDeviceGetHandleByIndex", lambda i: G0 if i == 0 else refuse(pynvml.NVML_ERROR_NO_PERMISSION)
    )
    assert [gpu.uuid for gpu in Nvml().gpus()] == [G0]


@pytest.mark.parametrize("hides", ["nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetGraphicsRunningProcesses"])
def test_hidden_processes_are_none(driver, monkeypatch, hides):
    nvml = Nvml()
    nvml.gpus()
    monkeypatch.setattr(pynvml, hides, lambda _: refuse(pynvml.NVML_ERROR_NO_PERMISSION))
    assert nvml.read(G0).free_bytes == 30


@pytest.mark.parametrize("code", [pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, pynvml.NVML_ERROR_DRIVER_NOT_LOADED])
def test_no_library_or_no_driver_is_no_gpu_and_no_error(monkeypatch, code):
    monkeypatch.setattr(pynvml, "nvmlInit", lambda: refuse(code))
    nvml = Nvml()
    assert nvml.gpus() == []
    assert "no NVIDIA driver" in nvml.lack
    assert nvml.read(G0).fault


def test_this_machine_can_be_asked():
    assert all(gpu.places or gpu.instances == () for gpu in Nvml().gpus())


def test_energy_is_counted_in_joules_where_it_is(driver):
    nvml = Nvml()
    nvml.gpus()
    assert [nvml.energy_joules(uuid) for uuid in (G0, M0, "GPU-never-seen")] == [5.0, None, None]


@pytest.mark.parametrize(
    ("uuids", "slot", "then", "joules"),
    [
        ([G0], G0, 7_500, 2.5),
        ([G0, G0], f"{G0}+{G0}", 7_500, 5.0),
        ([G0, M0], f"{G0}+{M0}", 7_500, None),
        ([G0], f"{G0}#2", 7_500, None),
        ([G0], G0, 100, None),
        ([], "cpu:0", 7_500, None),
    ],
    ids=["one", "several are summed", "one does not count", "shared on purpose", "driver loaded anew", "CPU"],
)
def test_a_meter_tells_what_was_used_meanwhile(driver, monkeypatch, uuids, slot, then, joules):
    nvml = Nvml()
    monkeypatch.setattr(_nvml, "machine", lambda: nvml)
    meter = Meter(uuids, slot)
    monkeypatch.setattr(driver, "millijoules", then)
    assert meter.joules() == joules
