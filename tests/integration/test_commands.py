"""Commands that steer and watch runs, through the command line."""

import itertools
import json
import os
import select
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest
from sqlite_utils import Database

from nlq.commands._detach import Detached
from nlq.core.launch import Process
from nlq.core.run import State
from nlq.runners._process import identify, is_alive, this_process
from nlq.store.migrations import migrations
from nlq.store.queue import Claim, Queue
from nlq.store.reader import Reader

Run = Callable[..., object]

TWO_ARMS = 'name: two\narms: {baseline: {}, wide: {model.mlp.ratio: 5, label: "α-λ ⭐"}}\nseeds: [0, 1]'
GONE = Process(socket.gethostname(), this_process().boot_id, 999_999_999, "1")
ELSEWHERE = Process("elsewhere", "another boot", 77, "1")

STUBBORN = """
import os, signal, sys, time
if os.fork() == 0:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    open('child', 'w').write(str(os.getpid()))
time.sleep(600)
"""

SLOTS = itertools.count()


@pytest.fixture
def queued(nlq: Run, write_spec: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A database with four queued runs and no scheduler."""
    monkeypatch.setattr("nlq.commands.sweep.detach", lambda *_: Detached(1, tmp_path / "log"))
    assert nlq("sweep", write_spec(TWO_ARMS), "--detach").code == 0
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    return tmp_path / "runs.db"


def states(db: Path) -> list[str]:
    return [str(run.state) for run in Reader(db).runs()]


def ids(db: Path) -> list[str]:
    return [run.run_id for run in Reader(db).runs()]


def claim(db: Path, worker: Process | None, scheduler: Process | None = None) -> Claim:
    """The next run is running, in a process or in none."""
    queue = Queue(db)
    one = queue.claim(None, scheduler or this_process(), f"slot {next(SLOTS)}", db.parent / ".nlq" / "logs")
    assert one is not None
    if worker:
        queue.launched(one.attempt, worker)
    queue.close()
    one.log_path.parent.mkdir(parents=True, exist_ok=True)
    return one


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[str], Process]]:
    """Starts Python in a process group of its own, as runners do."""
    children = []

    def run(code: str) -> Process:
        child = subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path, start_new_session=True)
        threading.Thread(target=child.wait, daemon=True).start()
        children.append(child)
        return identify(child.pid)

    yield run
    for child in children:
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)


def wait(what: Callable[[], object], most_s: float = 60) -> None:
    deadline = time.monotonic() + most_s
    while not what():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)


def test_work_trains_what_is_queued_and_ends(nlq: Run, queued: Path, tmp_path: Path) -> None:
    done = nlq("work", "--runner", "inline", "--json", "--notify", f"{shutil.which('touch')} ended")
    assert done.code == 0
    assert json.loads(done.out)["states"] == {"completed": 4}
    assert states(queued) == ["completed"] * 4
    assert (tmp_path / "ended").exists()
    assert nlq("work", "--runner", "inline").code == 0


def test_work_of_one_sweep_leaves_the_others(nlq: Run, queued: Path, write_spec: Run) -> None:
    nlq("sweep", write_spec("name: other\narms: {a: {model.layers: 2}}", "other.yaml"), "--runner", "inline")
    assert sorted(states(queued)) == ["completed", *["queued"] * 4]
    unknown = nlq("work", "--sweep", "twoo")
    assert unknown.code == 2
    assert 'did you mean "two"?' in unknown.err


def test_a_detached_sweep_trains_by_itself(nlq: Run, write_spec: Run, tmp_path: Path) -> None:
    notify = f"{shutil.which('touch')} '{tmp_path / 'ended'}'"
    spec = write_spec("name: a b\narms: {a: {}}")
    done = nlq("sweep", spec, "--detach", "--slots", 1, "--notify", notify, "--json")
    assert done.code == 0
    begun = json.loads(done.out)
    log = Path(begun["log_path"])
    assert log.parent == tmp_path / ".nlq" / "logs"
    assert begun["queued"] == 1
    assert os.getsid(begun["pid"]) == begun["pid"]
    wait(lambda: (tmp_path / "ended").exists(), 120)
    assert states(tmp_path / "runs.db") == ["completed"]
    assert "completed" in log.read_text(encoding="utf-8")
    again = nlq("sweep", spec, "--detach", "--slots", 1, "--json")
    assert json.loads(again.out)["pid"] is None


def test_cancel_retry_and_priority_by_id_arm_and_state(nlq: Run, queued: Path) -> None:
    first, second, *_ = ids(queued)
    changed = json.loads(nlq("cancel", first[:6], second, "--json").out)
    assert [one["run_id"] for one in changed["changed"]] == [first, second]
    assert {one["state"] for one in changed["changed"]} == {"cancelled"}
    again = nlq("cancel", first)
    assert again.code == 0
    assert "left alone (cancelled already)" in again.out
    assert "α-λ ⭐  seed 1: cancelled (was queued)" in nlq("cancel", "--arm", "wide").out
    assert states(queued) == ["cancelled"] * 4
    assert "4 runs of 4 changed" in nlq("retry", "--state", "cancelled").out
    assert states(queued) == ["queued"] * 4
    assert nlq("priority", "-5", "--arm", "baseline").code == 0
    assert json.loads(nlq("priority", "7", ids(queued)[3], "--json").out)["changed"][0]["name"] == "α-λ ⭐  seed 1"
    assert [claim(queued, None).run_id for _ in range(4)] == [ids(queued)[i] for i in (3, 2, 0, 1)]


def test_what_is_completed_is_left_alone(nlq: Run, queued: Path) -> None:
    one = claim(queued, None)
    Queue(queued).finish(one.attempt, State.COMPLETED)
    for command in (["cancel"], ["retry"], ["priority", 3]):
        done = nlq(*command, one.run_id)
        assert done.code == 0
        assert "left alone (completed" in done.out
    assert states(queued)[0] == "completed"


def test_cancel_ends_the_whole_group(nlq: Run, queued: Path, start: Run, tmp_path: Path) -> None:
    """A run whose child ignores SIGTERM, its scheduler gone: both are ended, and nothing else."""
    worker, bystander = start(STUBBORN), start("import time; time.sleep(600)")
    one = claim(queued, worker, scheduler=GONE)
    wait(lambda: (tmp_path / "child").exists() and (tmp_path / "child").read_text())
    child = identify(int((tmp_path / "child").read_text()))
    assert is_alive(child)
    assert "cancelled (was running)" in nlq("cancel", one.run_id).out
    wait(lambda: not is_alive(child))
    assert not is_alive(worker)
    assert is_alive(bystander)
    assert Reader(queued).run(one.run_id).state is State.CANCELLED
    assert nlq("cancel", one.run_id).code == 0


def test_cancel_of_a_run_of_another_host_says_so(nlq: Run, queued: Path) -> None:
    one = claim(queued, ELSEWHERE, scheduler=ELSEWHERE)
    assert "trains on elsewhere: its process there stops at its next write" in nlq("cancel", one.run_id).out
    assert Reader(queued).run(one.run_id).state is State.CANCELLED


@pytest.mark.parametrize(
    ("arguments", "message", "hint"),
    [
        (["cancel"], "say which runs", "nlq cancel --arm ARM"),
        (["retry"], "say which runs", "nlq retry RUN …"),
        (["priority", 3], "say which runs", "nlq priority 3 --sweep NAME"),
        (["cancel", "zzz"], 'no run "zzz"', "nlq status"),
        (["cancel", ""], "several runs", "more characters"),
        (["cancel", "--arm", "wid"], 'no arm "wid"', 'did you mean "wide"?'),
        (["cancel", "--state", "runing"], 'no state "runing"', 'did you mean "running"?'),
        (["cancel", "--sweep", "tow"], 'no sweep "tow"', 'did you mean "two"?'),
        (["retry", "--state", "failed"], "no run fits --state failed", "nlq status"),
        (["retry", "--arm", "wide", "--state", "failed"], "--arm wide --state failed", "nlq status"),
        (["logs", "zzz"], 'no run "zzz"', "nlq status"),
        (["work", "--stall-timeout", "0"], "--stall-timeout 0", "--stall-timeout 1800"),
        (["work", "--notify", "no-such-command"], 'no command "no-such-command"', "--notify bell"),
        (["sweep", "spec.yaml", "--notify", "ftp://x"], "ftp://x", "--notify bell"),
        (["sweep", "spec.yaml", "--detach", "--notify", "bell"], "no terminal to ring", "https://"),
        (["sweep", "spec.yaml", "--stall-timeout", "nan"], "--stall-timeout nan", "--stall-timeout 1800"),
        (["status", "--watch", "--json"], "--watch", "nlq status --watch"),
        (["db", "backup", "spec.yaml"], "exists already", ""),
        (["db", "backup", "no/where.db"], "no such folder", "mkdir"),
    ],
)
def test_bad_input_changes_nothing(nlq: Run, queued: Path, arguments: list[object], message: str, hint: str) -> None:
    before = (states(queued), queued.read_bytes(), sorted(queued.parent.rglob("*")))
    done = nlq(*arguments)
    assert done.code == 2
    assert message in done.err
    assert hint in done.err
    assert done.out == ""
    assert (states(queued), queued.read_bytes(), sorted(queued.parent.rglob("*"))) == before


@pytest.mark.parametrize(
    "command", ["work", "cancel --arm a", "retry --arm a", "priority 1 --arm a", "logs a", "db check"]
)
def test_no_database_is_said_and_none_is_made(nlq: Run, tmp_path: Path, command: str) -> None:
    done = nlq(*command.split())
    assert done.code == 2
    assert "no such database" in done.err
    assert list(tmp_path.iterdir()) == []


def test_status_tells_the_truth_and_writes_nothing(nlq: Run, queued: Path, start: Run) -> None:
    alive = start("import time; time.sleep(600)")
    runs = [claim(queued, GONE, scheduler=GONE), claim(queued, alive, scheduler=GONE), claim(queued, alive)]
    content = queued.read_bytes()
    shown = json.loads(nlq("status", "--json").out)
    by_id = {run["run_id"]: run for run in shown["runs"]}
    assert [by_id[one.run_id]["state"] for one in runs] == ["lost", "running", "running"]
    assert by_id[runs[0].run_id]["remark"] == "its process is gone; nlq work goes on with it"
    assert "nlq work takes it over" in by_id[runs[1].run_id]["remark"]
    assert by_id[runs[2].run_id]["remark"] is None
    assert shown["states"] == {"lost": 1, "running": 2, "queued": 1}
    table = nlq("status").out
    assert "1 lost, 2 running, 1 queued" in table
    assert f"{runs[0].run_id}: its process is gone; nlq work goes on with it" in table
    assert "its process is gone" in nlq("show", runs[0].run_id).out
    assert json.loads(nlq("show", runs[0].run_id, "--json").out)["state"] == "lost"
    assert queued.read_bytes() == content
    assert Reader(queued).run(runs[0].run_id).state is State.RUNNING


def test_a_claimed_run_lives_as_long_as_its_scheduler(nlq: Run, queued: Path) -> None:
    """Between the claim and the start there is no process yet."""
    claim(queued, None)
    claim(queued, None, scheduler=GONE)
    assert json.loads(nlq("status", "--json").out)["states"] == {"running": 1, "lost": 1, "queued": 2}


def test_logs_of_attempts_and_their_ends(nlq: Run, queued: Path) -> None:
    for number in (1, 2):
        one = claim(queued, GONE, scheduler=GONE)
        one.log_path.write_bytes(b"".join(b"%d: line %d\n" % (number, i) for i in range(100)))
        Queue(queued).lose(one.attempt, "gone")
    assert nlq("logs", one.run_id).out.splitlines()[0] == "2: line 0"
    assert nlq("logs", one.run_id, "-n", 2).out == "2: line 98\n2: line 99\n"
    assert nlq("logs", one.run_id, "--attempt", 1, "--lines", 1).out == "1: line 99\n"
    assert json.loads(nlq("logs", one.run_id, "-n", 1, "--json").out)["lines"] == ["2: line 99"]
    missing = nlq("logs", one.run_id, "--attempt", 3)
    assert missing.code == 2
    assert "--attempt 1 to --attempt 2" in missing.err
    waiting = nlq("logs", ids(queued)[1])
    assert waiting.code == 2
    assert "it is queued" in waiting.err
    one.log_path.unlink()
    assert nlq("logs", one.run_id).code == 2


def test_any_byte_is_printed_under_any_locale(queued: Path) -> None:
    one = claim(queued, GONE, scheduler=GONE)
    one.log_path.write_bytes(b"before \xf8 " + "α-λ ⭐ after\n".encode())
    ascii_alone = {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    for command, more in ((["logs", one.run_id], {}), (["logs", one.run_id], ascii_alone), (["status"], ascii_alone)):
        environment = {**os.environ, "LC_ALL": "C", **more}
        done = subprocess.run([sys.executable, "-m", "nlq", *command], env=environment, capture_output=True)
        assert (done.returncode, done.stderr) == (0, b"")
        if command[0] == "logs":
            assert done.stdout.startswith(b"before ")
            assert done.stdout.endswith(b" after\n")
        if not more:
            assert "α-λ ⭐".encode() in done.stdout


def test_following_shows_what_comes_and_ends_with_the_run(queued: Path, start: Run) -> None:
    one = claim(queued, start("import time; time.sleep(600)"))
    one.log_path.write_bytes(b"first\n")
    command = [sys.executable, "-m", "nlq", "logs", one.run_id, "-f", "-n", "1"]
    follower = subprocess.Popen(command, stdout=subprocess.PIPE, bufsize=0)
    assert follower.stdout is not None
    assert follower.stdout.readline() == b"first\n"
    with one.log_path.open("ab") as log:
        log.write("half a line ⭐".encode()[:-1])
        log.flush()
        began = time.monotonic()
        assert follower.stdout.read(5) == b"half "
        assert time.monotonic() - began < 2
        log.write("⭐".encode()[-1:] + b" whole\n")
    assert follower.stdout.readline() == "a line ⭐ whole\n".encode()
    queue = Queue(queued)
    queue.lose(one.attempt, "gone")
    again = claim(queued, start("import time; time.sleep(600)"))
    assert again.run_id == one.run_id
    again.log_path.write_bytes(b"second attempt\n")
    assert follower.stdout.readline() == b"second attempt\n"
    with again.log_path.open("ab") as log:
        log.write(b"last\n")
    queue.finish(again.attempt, State.COMPLETED)
    assert follower.communicate(timeout=60)[0] == b"last\n"
    assert follower.returncode == 0


def test_watching_without_a_terminal_prints_the_table(nlq: Run, queued: Path) -> None:
    assert nlq("work", "--runner", "inline").code == 0
    done = nlq("status", "--watch")
    assert done.code == 0
    assert done.out.count("12/12") == 4
    assert done.out.count("completed") == 4
    differences = [line.split()[7] for line in done.out.splitlines() if line.startswith("α-λ ⭐")]
    reader = Reader(queued)
    members = {(m.arm, m.run.seed): m.run.run_id for m in reader.sweep("two").members}
    for seed, shown in enumerate(differences):
        own, base = ([e for e in reader.evals([members[arm, seed]])[members[arm, seed]] if e.split == "select"][-1]
                     for arm in ("wide", "baseline"))  # fmt: skip
        assert own.step == base.step
        assert shown == f"{own.loss_nats - base.loss_nats:+.4f}".replace("-", "−")


@pytest.mark.skipif(sys.platform == "win32", reason="no pseudo-terminals")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_watching_leaves_the_terminal_as_it_was(queued: Path, number: signal.Signals) -> None:
    import pty

    ours, theirs = pty.openpty()
    watcher = subprocess.Popen([sys.executable, "-m", "nlq", "status", "--watch"], stdin=theirs, stdout=theirs)
    os.close(theirs)
    seen = b""
    while b"time left" not in seen:
        seen += os.read(ours, 65536)
    assert "α-λ ⭐".encode() in seen
    with suppress(OSError):  # the other end is closed
        watcher.send_signal(number)
        while watcher.poll() is None or select.select([ours], [], [], 0)[0]:
            if select.select([ours], [], [], 0.2)[0]:
                seen += os.read(ours, 65536)
    assert watcher.wait(60) == 130
    os.close(ours)
    assert seen.count(b"\x1b[?25l") == seen.count(b"\x1b[?25h") == 1
    assert b"Traceback" not in seen


def test_backup_check_and_upgrade(nlq: Run, queued: Path, tmp_path: Path) -> None:
    assert nlq("db", "check").out == "runs.db: whole\n"
    made = json.loads(nlq("db", "backup", "copy.db", "--json").out)
    assert states(Path(made["backup"])) == ["queued"] * 4
    assert (tmp_path / nlq("db", "backup").out.strip()).is_file()
    assert nlq("db", "upgrade").out == "runs.db: up to date\n"
    claim(queued, GONE, scheduler=GONE)
    with closing(sqlite3.connect(queued)) as connection, connection:
        connection.execute("UPDATE attempts SET ended = 'lost'")
    found = nlq("db", "check", "--json")
    assert found.code == 1
    assert json.loads(found.out)["findings"][0]["what"] == "running without an open attempt"
    text = nlq("db", "check")
    assert text.code == 1
    assert f"running without an open attempt (1): {ids(queued)[0]}" in text.out


def make_older(db: Path) -> None:
    """A database with the same rows and the first version's tables alone."""
    rows = Database(db.with_name("older.db"), execute_plugins=False)
    migrations.apply(rows, stop_before=migrations._migrations[1].name)
    rows.execute("ATTACH ? AS newer", [str(db)])
    rows.execute("PRAGMA foreign_keys = OFF")
    for table in ("specs", "runs", "sweeps", "sweep_runs"):
        columns = ", ".join(rows[table].columns_dict)
        rows.execute(f"INSERT INTO {table} ({columns}) SELECT {columns} FROM newer.{table}")
    rows.close()
    for old in (db.with_name(f"{db.name}-wal"), db.with_name(f"{db.name}-shm")):
        old.unlink(missing_ok=True)
    db.with_name("older.db").replace(db)


def test_an_older_database(nlq: Run, queued: Path, tmp_path: Path) -> None:
    make_older(queued)
    for command in ("status", "report --table1", "logs a", "db check"):
        done = nlq(*command.split())
        assert done.code == 2
        assert "nlq db upgrade" in done.err
    assert nlq("cancel", "--arm", "wide").code == 0
    assert len(list(tmp_path.glob("runs.db.before-0002*"))) == 1
    make_older(queued)
    assert "applied 0002_resume" in nlq("db", "upgrade").out
    assert len(list(tmp_path.glob("runs.db.before-0002*"))) == 2
    assert states(queued) == ["queued", "queued", "cancelled", "cancelled"]


def test_everything_that_prints_results_prints_json(nlq: Run, queued: Path) -> None:
    nlq("work", "--runner", "inline")
    for command in ("status", "report --table1", "report --published", "plot --list", "plot training-dynamics",
                    "export evals", "variants", "data ls", "doctor", "db check", "db backup", "db upgrade",
                    f"show {ids(queued)[0]}", f"logs {ids(queued)[0]}", "cancel --arm wide", "retry --arm wide",
                    "priority 1 --arm wide", "work", "sweep spec.yaml", "sweep spec.yaml --dry-run"):  # fmt: skip
        done = nlq(*command.split(), "--json")
        assert done.code == 0, command
        json.loads(done.out)


def test_a_damaged_database_is_refused(nlq: Run, queued: Path, tmp_path: Path) -> None:
    nlq("db", "backup", "runs.db.backup-1")
    with closing(sqlite3.connect(queued)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    with queued.open("r+b") as file:
        file.seek(4096 * 3)
        file.write(b"\xa5" * 4096 * 12)
    for command in (["work"], ["sweep", "spec.yaml"], ["cancel", "--arm", "wide"]):
        done = nlq(*command)
        assert done.code == 2
        assert "damaged" in done.err
        assert "nlq db check" in done.err
        assert "runs.db.backup-1" in done.err
    assert nlq("db", "check").code == 1


def test_a_network_file_system_is_refused_for_a_second_host(
    nlq: Run, queued: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nlq.store.maintenance.file_system", lambda _: "nfs4")
    alone = nlq("work", "--runner", "inline")
    assert alone.code == 0
    assert "network file system (nfs4)" in alone.err
    queue = Queue(queued)
    queue.db.execute("UPDATE runs SET state = 'queued'")
    claim(queued, ELSEWHERE, scheduler=ELSEWHERE)
    for command in (["work"], ["sweep", "spec.yaml"], ["cancel", "--arm", "wide"]):
        done = nlq(*command)
        assert done.code == 2
        assert "elsewhere" in done.err
        assert "nlq db backup" in done.err
    assert nlq("status").code == 0
