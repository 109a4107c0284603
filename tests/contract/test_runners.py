"""What every runner must hold: exit codes, signals, whole groups, output at once, the slot's environment."""

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

import nlq
from nlq.core import plugin
from nlq.core.launch import Launch, Process, Slot
from nlq.runners._process import UNKNOWN_CODE, is_alive

REAL = Path(nlq.__file__).parent
WORKER = """
import json, os, random, signal, subprocess, sys, time

def import_all():
    for statement in os.environ.get("FAULT", "").splitlines():
        exec(statement)

def end_children():
    pass

def main(arguments):
    what, *rest = arguments
    if what == "exit":
        print("was here")
        return int(rest[0])
    if what == "environment":
        print("value", os.environ.get(rest[0]))
        return 0
    if what == "python":
        exec(rest[0])
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
    (tmp_path / "nlq" / "__init__.py").write_text(f"__path__.append({str(REAL)!r})")
    shutil.copy(REAL / "provenance.py", tmp_path / "nlq")
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


@every_runner
def test_a_runner_gets_ready_in_the_background(kind: str, entry, tmp_path: Path) -> None:
    runner = make(kind, entry)
    until(runner.warm)
    assert ended(runner.start(launch(tmp_path, "exit", "5"))) == 5
    assert runner.warm()


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
    runner = make("local", entry)
    assert runner.warm(), "not to be waited for"
    with pytest.raises(OSError):
        runner.start(launch(tmp_path, "exit", "0"))


def test_a_log_that_cannot_be_opened_raises(entry, tmp_path: Path) -> None:
    order = launch(tmp_path, "exit", "0")
    order.log_path.mkdir(parents=True)
    with pytest.raises(OSError):
        make("local", entry).start(order)


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


def python(tmp_path: Path, code: str, name: str = "α run", **environment: str) -> Launch:
    """A run that executes some code."""
    return Launch(("python", code), tmp_path / "logs" / f"{name}.log", Slot("cpu:0", "cpu", 1, environment))


def printed(runner, order: Launch) -> list[str]:
    """The words that a run prints."""
    assert ended(runner.start(order)) == 0, log_of(order)
    return log_of(order).split()


PARENT = "print(os.getppid(), os.getpgid(0), os.getsid(0), os.getpid())"


def test_runs_side_by_side_have_their_own_environments_and_logs(entry, tmp_path: Path) -> None:
    runner, code = make("local", entry), "print(os.environ['CUDA_VISIBLE_DEVICES'], flush=True); time.sleep(600)"
    orders = [python(tmp_path, code, name, CUDA_VISIBLE_DEVICES=name) for name in ("GPU-a", "GPU-b")]
    handles = [runner.start(order) for order in orders]
    until(lambda: [log_of(order) for order in orders] == ["GPU-a\n", "GPU-b\n"])
    assert handles[0].process != handles[1].process
    for handle in handles:
        handle.stop(0)


def test_a_variable_that_the_scheduler_no_longer_has_is_gone(
    entry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THERE_BEFORE", "1")
    runner, order = make("local", entry), launch(tmp_path, "environment", "THERE_BEFORE")
    ended(runner.start(order))
    monkeypatch.delenv("THERE_BEFORE")
    ended(runner.start(order))
    assert log_of(order) == "value 1\nvalue None\n"


@pytest.mark.parametrize(
    ("inherited", "tunables"),
    [
        ({}, "glibc.malloc.hugetlb=1"),
        ({"GLIBC_TUNABLES": "glibc.malloc.check=1"}, "glibc.malloc.check=1:glibc.malloc.hugetlb=1"),
        ({"GLIBC_TUNABLES": "glibc.malloc.hugetlb=0"}, "glibc.malloc.hugetlb=0"),
    ],
)
def test_memory_is_in_huge_pages_unless_the_user_says_otherwise(
    entry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inherited: dict[str, str], tunables: str
) -> None:
    monkeypatch.delenv("GLIBC_TUNABLES", raising=False)
    for name, value in inherited.items():
        monkeypatch.setenv(name, value)
    code = "print(os.environ['GLIBC_TUNABLES'], os.getppid()); time.sleep(600)"
    order = python(tmp_path, code)
    handle = make("local", entry).start(order)
    until(lambda: log_of(order))
    words, server = log_of(order).split()
    assert words == tunables
    split_by_glibc = Path(f"/proc/{server}/environ").read_text().replace("\0", ":")
    assert f":GLIBC_TUNABLES={tunables}:" in f":{split_by_glibc}"
    handle.stop(0)


def test_a_run_leads_its_own_session(entry, tmp_path: Path) -> None:
    server, *own = map(int, printed(make("local", entry), python(tmp_path, PARENT)))
    assert len(set(own)) == 1
    assert server not in (own[0], os.getpid())


@pytest.mark.parametrize("fault", ["", "raise ImportError('planted')"], ids=["warm", "cold"])
def test_a_run_has_nothing_of_the_server_open(
    entry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    monkeypatch.setenv("FAULT", fault)
    runner = make("local", entry)
    other = runner.start(python(tmp_path, "time.sleep(600)", "other"))
    code = "print(json.dumps([os.readlink(f'/proc/self/fd/{n}') for n in (0, 1, 2)]), os.listdir('/proc/self/fd'))"
    order = python(tmp_path, code)
    assert ended(runner.start(order)) == 0
    links, numbers = json.JSONDecoder().raw_decode(log_of(order))
    assert links == ["/dev/null", str(order.log_path), str(order.log_path)]
    assert log_of(order)[numbers:].count("'") == 2 * len(["0", "1", "2", "the listing itself"])
    other.stop(0)


def test_a_run_is_named_as_a_worker(entry, tmp_path: Path) -> None:
    order = launch(tmp_path, "sleep")
    handle = local(entry, order)
    line = " ".join(psutil.Process(handle.process.pid).cmdline())
    assert line == f"{sys.executable} -P -m nlq.worker sleep"
    handle.stop(0)


def test_runs_draw_different_numbers(entry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAULT", "import numpy.random\nnumpy.random.rand(), random.random()")
    runner, order = make("local", entry), python(tmp_path, "import numpy; print(random.random(), numpy.random.rand())")
    ended(runner.start(order))
    assert len({*printed(runner, order)}) == 4


def test_a_run_whose_imports_fail_starts_cold(entry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAULT", "raise ImportError('planted')")
    runner, order = make("local", entry), python(tmp_path, "print(*sys.orig_argv[:4], flush=True); os._exit(9)")
    until(runner.warm)
    assert ended(runner.start(order)) == 9
    assert log_of(order) == f"{sys.executable} -P -m nlq.worker\n"


def test_a_thread_of_an_import_makes_starts_cold(entry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAULT", "import threading as t\nt.Thread(target=time.sleep, args=[600], daemon=True).start()")
    assert "nlq.worker" in printed(make("local", entry), python(tmp_path, "print(*sys.orig_argv)"))


def test_no_room_for_a_process_raises_and_the_server_stays(
    entry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    again = "real, os.fork = os.fork, lambda: os.environ.pop('FULL', None) and fail() or real()"
    fault = f"import errno\ndef fail(): raise OSError(errno.EAGAIN, 'full')\n{again}"
    monkeypatch.setenv("FAULT", f"exec({fault!r}, globals())")
    monkeypatch.setenv("FULL", "1")
    runner = make("local", entry)
    with pytest.raises(OSError) as raised:
        runner.start(launch(tmp_path, "exit", "0"))
    assert raised.value.errno == errno.EAGAIN
    assert ended(runner.start(launch(tmp_path, "exit", "3"))) == 3


@pytest.mark.parametrize("code", ["sys.exit('a word')", "raise KeyError('a word')", "sys.exit()", "sys.exit(4)"])
def test_any_end_has_the_interpreters_exit_code(entry, tmp_path: Path, code: str) -> None:
    alone = subprocess.run([sys.executable, "-c", f"import sys; {code}"], capture_output=True, text=True, check=False)
    order = python(tmp_path, code)
    assert ended(make("local", entry).start(order)) == alone.returncode
    assert log_of(order).splitlines()[-1:] == alone.stderr.splitlines()[-1:]


def test_idle_threads_of_a_library_keep_no_run_from_ending(entry, tmp_path: Path) -> None:
    code = "from concurrent.futures import ThreadPoolExecutor as Pool; Pool(2).submit(print, 'done').result()"
    assert printed(make("local", entry), python(tmp_path, code)) == ["done"]


def test_an_interrupt_is_told_as_a_signal(entry, tmp_path: Path) -> None:
    order = python(tmp_path, "os.kill(os.getpid(), signal.SIGINT); time.sleep(600)")
    assert ended(make("local", entry).start(order)) == -signal.SIGINT


def test_a_killed_server_ends_no_run_and_another_takes_its_place(entry, tmp_path: Path) -> None:
    runner = make("local", entry)
    first, second = launch(tmp_path, "exit", "0"), python(tmp_path, f"{PARENT}; time.sleep(600)", "second")
    ended(runner.start(first))
    going = runner.start(second)
    until(lambda: log_of(second))
    server = psutil.Process(int(log_of(second).split()[0]))
    server.kill()
    until(lambda: runner.warm() and ended(runner.start(first)) == 0)
    assert going.poll() is None
    assert is_alive(going.process)
    going.stop(0)
    assert going.poll() == UNKNOWN_CODE
    assert not is_alive(going.process)


def test_a_held_server_keeps_no_run_from_ending(entry, tmp_path: Path) -> None:
    order = python(tmp_path, f"{PARENT}; time.sleep(600)")
    handle = make("local", entry).start(order)
    until(lambda: log_of(order))
    server = psutil.Process(int(log_of(order).split()[0]))
    server.suspend()
    handle.stop(0)
    assert handle.poll() == UNKNOWN_CODE
    server.resume()


SCHEDULER = """
import sys, time
from pathlib import Path
from nlq.core.launch import Launch, Slot
from nlq.runners import local
runner, log = local.make(None), Path(sys.argv[1])
code = "print(os.getppid(), os.getpid()); time.sleep(600)"
runner.start(Launch(("python", code), log, Slot("cpu:0", "cpu", 1)))
while not log.read_text().endswith("\\n"):
    time.sleep(0.01)
time.sleep(float(sys.argv[2]))
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, None], ids=["killed", "ended"])
def test_a_server_ends_with_its_scheduler_and_its_runs_go_on(entry, tmp_path: Path, number: int | None) -> None:
    log = tmp_path / "run.log"
    scheduler = subprocess.Popen([sys.executable, "-c", SCHEDULER, str(log), "600" if number else "0"])
    until(lambda: log.exists() and log.read_text().endswith("\n"))
    if number:
        scheduler.send_signal(number)
    scheduler.wait()
    server, worker = map(int, log.read_text().split())
    until(lambda: gone(server))
    assert not gone(worker)
    os.killpg(worker, signal.SIGKILL)


def test_a_scheduler_that_dies_while_the_server_imports_leaves_nothing(
    entry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAULT", f"open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid()))\ntime.sleep(1)")
    log = tmp_path / "run.log"
    scheduler = subprocess.Popen([sys.executable, "-c", SCHEDULER, str(log), "600"])
    until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text() and log.exists())
    scheduler.kill()
    scheduler.wait()
    until(lambda: gone(int((tmp_path / "pid").read_text())))
    assert log.read_text() == ""


def test_newer_source_is_what_the_next_run_gets(entry, tmp_path: Path) -> None:
    runner = make("local", entry)
    handle = runner.start(python(tmp_path, "time.sleep(0.5); sys.exit(6)", "before"))
    with (tmp_path / "nlq" / "worker.py").open("a") as source:
        source.write("\nedited = 'edited'")
    assert printed(runner, python(tmp_path, "print(globals().get('edited'))", "after")) == ["edited"]
    assert ended(handle) == 6
