"""What every runner must hold: exit codes, signals, whole groups, output at once, the slot's environment."""

import os
import signal
import time
from pathlib import Path

import psutil
import pytest

from nlq.core import plugin
from nlq.core.launch import Launch, Process, Slot
from nlq.runners._process import UNKNOWN_CODE, is_alive

WORKER = """
import os, signal, subprocess, sys, time

def main(arguments):
    what, *rest = arguments
    if what == "exit":
        print("was here")
        return int(rest[0])
    if what == "environment":
        print("value", os.environ.get(rest[0]))
        return 0
    if what == "die":
        os.kill(os.getpid(), int(rest[0]))
    if what == "stop":
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
    if what == "deaf":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if what == "fork":
        code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True)"
        code += "; time.sleep(600)"
        child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
        child.stdout.readline()
        print("child", child.pid)
        if rest:
            return int(rest[0])
    print("ready")
    print("error", file=sys.stderr)
    time.sleep(600)
"""

LIMIT_S = 30.0


@pytest.fixture
def entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A worker that does what its arguments say; processes that start here find it in place of nlq's own."""
    (tmp_path / "nlq").mkdir()
    (tmp_path / "nlq" / "__init__.py").touch()
    (tmp_path / "nlq" / "worker.py").write_text(
        f"{WORKER}\nif __name__ == '__main__':\n    sys.exit(main(sys.argv[1:]))"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    names: dict = {}
    exec(compile(WORKER, "worker", "exec"), names)
    return names["main"]


def launch(tmp_path: Path, *arguments: str, **environment: str) -> Launch:
    return Launch(arguments, tmp_path / "logs" / "α run.log", Slot("cpu:0", "cpu", 1, environment))


def until(condition, limit_s: float = LIMIT_S) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def ended(handle) -> int:
    until(lambda: handle.poll() is not None)
    return handle.poll()


def log_of(order: Launch) -> str:
    return order.log_path.read_text(encoding="utf-8") if order.log_path.exists() else ""


def gone(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


every_runner = pytest.mark.parametrize("kind", plugin.kinds("nlq.runners"))


def make(kind: str, entry):
    return plugin.load("nlq.runners", kind).make(entry)


@every_runner
@pytest.mark.parametrize("code", [0, 1, 28])
def test_exit_code_and_output(kind: str, entry, tmp_path: Path, code: int) -> None:
    order = launch(tmp_path, "exit", str(code))
    handle = make(kind, entry).start(order)
    assert ended(handle) == code
    assert log_of(order) == "was here\n"
    handle.ask_to_stop()
    handle.stop(0)
    handle.stop(0)
    assert handle.poll() == code


@every_runner
def test_a_second_attempt_adds_to_the_log(kind: str, entry, tmp_path: Path) -> None:
    order = launch(tmp_path, "exit", "0")
    for _ in range(2):
        ended(make(kind, entry).start(order))
    assert log_of(order) == "was here\n" * 2


@every_runner
def test_the_slots_environment_reaches_the_run_alone(kind: str, entry, tmp_path: Path) -> None:
    order = launch(tmp_path, "environment", "CUDA_VISIBLE_DEVICES", CUDA_VISIBLE_DEVICES="GPU-abc")
    ended(make(kind, entry).start(order))
    assert log_of(order) == "value GPU-abc\n"
    assert os.environ.get("CUDA_VISIBLE_DEVICES") != "GPU-abc"


@every_runner
def test_a_process_is_identified(kind: str, entry, tmp_path: Path) -> None:
    handle = make(kind, entry).start(launch(tmp_path, "exit", "0"))
    assert handle.process.pid > 0
    assert handle.process.started
    ended(handle)


@every_runner
def test_a_process_that_is_gone_can_be_adopted_and_has_ended(kind: str, entry) -> None:
    handle = make(kind, entry).adopt(Process("elsewhere", "boot", 1, "1"))
    assert handle.poll() == UNKNOWN_CODE
    handle.ask_to_stop()
    handle.stop(0)


def local(entry, order: Launch, wait_for: str = "ready"):
    handle = make("local", entry).start(order)
    until(lambda: wait_for in log_of(order) or handle.poll() is not None)
    return handle


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV])
def test_a_signal_is_told(entry, tmp_path: Path, number: int) -> None:
    assert ended(make("local", entry).start(launch(tmp_path, "die", str(int(number))))) == -number


def test_output_is_in_the_log_while_the_run_goes_on(entry, tmp_path: Path) -> None:
    order = launch(tmp_path, "sleep")
    handle = make("local", entry).start(order)
    until(lambda: "ready" in log_of(order) and "error" in log_of(order))
    assert handle.poll() is None
    handle.stop(0)


def test_an_asked_run_ends_by_itself(entry, tmp_path: Path) -> None:
    handle = local(entry, launch(tmp_path, "stop"))
    handle.ask_to_stop()
    handle.ask_to_stop()
    assert ended(handle) == 7


def test_stop_asks_first(entry, tmp_path: Path) -> None:
    handle = local(entry, launch(tmp_path, "stop"))
    handle.stop(LIMIT_S)
    assert handle.poll() == 7


def test_stop_ends_what_does_not_listen(entry, tmp_path: Path) -> None:
    handle = local(entry, launch(tmp_path, "deaf"))
    handle.stop(0.1)
    assert handle.poll() == -signal.SIGKILL
    handle.stop(0.1)
    assert not is_alive(handle.process)


def test_stop_ends_a_run_that_is_held(entry, tmp_path: Path) -> None:
    handle = local(entry, launch(tmp_path, "stop"))
    os.kill(handle.process.pid, signal.SIGSTOP)
    handle.stop(LIMIT_S)
    assert handle.poll() == 7


@pytest.mark.parametrize("leader_ends_first", [False, True])
def test_nothing_of_the_group_is_left(entry, tmp_path: Path, leader_ends_first: bool) -> None:
    order = launch(tmp_path, "fork", *(["3"] if leader_ends_first else []))
    handle = local(entry, order, "child")
    grandchild = int(log_of(order).split()[1])
    if leader_ends_first:
        assert ended(handle) == 3
    else:
        handle.stop(0.1)
    until(lambda: gone(grandchild))


def test_an_adopted_run_is_watched_and_ended_with_its_group(entry, tmp_path: Path) -> None:
    order = launch(tmp_path, "fork")
    handle = local(entry, order, "ready")
    grandchild = int(log_of(order).split()[1])
    adopted = make("local", entry).adopt(handle.process)
    assert adopted.poll() is None
    assert adopted.process == handle.process
    adopted.stop(0.1)
    adopted.stop(0.1)
    assert adopted.poll() == UNKNOWN_CODE
    until(lambda: gone(grandchild))
    assert handle.poll() is not None


def test_a_number_that_another_process_has_now_is_left_alone(entry, tmp_path: Path) -> None:
    handle = local(entry, launch(tmp_path, "sleep"))
    found = handle.process
    stranger = make("local", entry).adopt(Process(found.host, found.boot_id, found.pid, "1"))
    assert stranger.poll() == UNKNOWN_CODE
    stranger.ask_to_stop()
    stranger.stop(0)
    assert handle.poll() is None
    handle.stop(0)


def test_what_cannot_start_raises_and_leaves_nothing(entry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", str(tmp_path / "no-python"))
    with pytest.raises(OSError):
        make("local", entry).start(launch(tmp_path, "exit", "0"))


def test_nothing_in_the_working_folder_is_run(entry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "working folder"
    (folder / "nlq").mkdir(parents=True)
    (folder / "nlq" / "__init__.py").write_text("print('from the working folder')")
    (folder / "random.py").write_text("print('from the working folder')")
    monkeypatch.chdir(folder)
    order = launch(tmp_path, "exit", "0")
    handle = make("local", entry).start(order)
    until(lambda: handle.poll() is not None)
    assert "working folder" not in order.log_path.read_text()
