"""Bad input: one screen that says where, what, the nearest right thing and what to type next; exit code 2; no trace."""

import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from nlq.training.pace import Pace

Run = Callable[..., object]

BAD_SPECS = {
    "unknown key": ("armz: {a: {}}", "spec.yaml:6:1: armz", 'did you mean "arms"?'),
    "unknown setting": ("arms: {a: {modle.width: 3}}", "spec.yaml:", 'did you mean "model.width"?'),
    "misspelt variant": ("arms: {a: {model.variant: nonlinear_k}}", "model.variant", 'did you mean "nonlinear_q"?'),
    "misspelt component": ("arms: {a: {model.query: bottlenek}}", "model.query.kind", 'did you mean "bottleneck"?'),
    "misspelt option": ("arms: {a: {model.mlp.ration: 4}}", "model.mlp.ration", 'did you mean "ratio"?'),
    "text for a number": ("arms: {a: {optim.lr_max: fast}}", "must be a number, found 'fast'", ""),
    "text for an option's number": ("arms: {a: {model.mlp.ratio: '4'}}", "must be a number, found '4'", ""),
    "empty grid": ("arms: {a: {}}\ngrid: {}", "spec.yaml:", "grid: {optim.lr_max: [1e-3, 2e-3]}"),
    "empty axis": ("arms: {a: {}}\ngrid: {optim.lr_max: []}", "the list is empty", "optim.lr_max: [1e-3, 2e-3]"),
    "heads": ("arms: {a: {model.heads: 3}}", "3 heads do not divide width 16", "heads that divide the width: 1, 2, 4"),
    "grouped identity": (
        "arms: {a: {model.variant: identity, model.kv_heads: 1}}",
        "identity needs one key/value head for each query head",
        "model.kv_heads: 2",
    ),
    "devices": (
        "arms: {a: {train.devices: 3}}",
        "train.devices: 3 devices do not divide the 4 sequences of a batch",
        "devices that divide them: 1, 2, 4",
    ),
    "no device": ("arms: {a: {train.devices: 0}}", "train.devices", ""),
    "half a device": ("arms: {a: {train.devices: 1.5}}", "train.devices", ""),
    "micro-batch of a device": (
        "arms: {a: {train.devices: 2, train.micro_batch: 4}}",
        "train.micro_batch: 4 does not divide the 2 sequences of a batch that each device has",
        "",
    ),
    "sharded alone": (
        "arms: {a: {train.sharded: true}}",
        "train.sharded: one device has nobody to share with",
        "train.devices: 2 or more",
    ),
    "sharded muon": (
        "arms: {a: {train.devices: 2, train.sharded: true, optim.kind: muon}}",
        "train.sharded: muon needs whole matrices",
        "optim.kind: adamw or sgd; or train.sharded: false",
    ),
    "sharded and compiled": (
        "arms: {a: {train.devices: 2, train.sharded: true, train.compile: always}}",
        "train.compile: always does not go with train.sharded",
        "train.compile: never",
    ),
    "missing corpus": ("arms: {a: {data.path: nowhere}}", "nowhere", ""),
    "unknown corpus": ("arms: {a: {data.corpus: stdlb}}", "data.corpus", 'did you mean "stdlib"?'),
    "unknown tokenizer": ("arms: {a: {data.tokenizer: byte}}", "data.tokenizer", 'did you mean "bytes"?'),
    "short corpus": ("arms: {a: {train.batch_tokens: 160000}}", "data: ", ""),
    "small vocabulary": ("arms: {a: {model.vocab: 100}}", "too few for the 257 tokens", ""),
    "other digest": ("arms: {a: {data.sha256: abc}}", "data.sha256", ""),
    "not yaml": ("arms: {a: {", "not YAML", ""),
    "code": ("arms: !!python/object/apply:os.system ['touch owned']", "is refused", ""),
}


def test_more_devices_than_there_are(
    nlq: Run, write_spec: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = write_spec("arms: {a: {train.devices: 2}, b: {}}")
    before = files(tmp_path)
    done = nlq("sweep", spec, "--slots", 1)
    assert done.code == 2
    assert "train.devices is 2, and only 1 can be had at once: 1 slot" in done.err
    assert "train.devices: 1" in done.err
    assert "--slots 2" in done.err
    assert files(tmp_path) == before
    monkeypatch.setattr("nlq.training.pace.Paces.of", lambda *_: Pace(0.1, 0.1, 1))
    assert "only 1 can be had" in nlq("sweep", spec, "--slots", 1, "--dry-run").out


def files(folder: Path) -> set[str]:
    return {str(p.relative_to(folder)) for p in folder.rglob("*")}


@pytest.mark.parametrize("kind", BAD_SPECS)
@pytest.mark.parametrize("dry", [True, False], ids=["dry run", "sweep"])
def test_a_bad_spec(nlq: Run, write_spec: Run, tmp_path: Path, kind: str, dry: bool) -> None:
    text, message, hint = BAD_SPECS[kind]
    if dry and kind == "missing corpus":
        pytest.skip("a dry run goes on, with provisional keys")
    spec = write_spec(text)
    before = files(tmp_path)
    done = nlq("sweep", spec, *(["--dry-run"] if dry else []))
    assert done.code == 2
    assert message in done.err
    assert hint in done.err
    assert "Traceback" not in done.err
    assert len(done.err.splitlines()) < 24
    assert done.out == ""
    assert files(tmp_path) == before


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["sweep", "nowhere.yaml"], "nowhere.yaml: no such spec file"),
        (["sweep", "spec.yaml", "--runner", "locl"], 'did you mean "local"?'),
        (["sweep", "spec.yaml", "--slots", "0"], "--slots 0"),
        (["sweep", "spec.yaml", "--slots", "1000"], "--slots 1000"),
        (["sweep", "spec.yaml", "--db", "nowhere/runs.db"], "no such folder"),
        (["sweep", "spec.yaml", "--db", "."], "a folder, not a database"),
        (["sweep", "spec.yaml", "--db", "text.txt"], "not a database"),
        (["sweep", "spec.yaml", "--db", "foreign.db"], "not one of nlq's"),
        (["status"], "no such database"),
        (["status", "--db", "text.txt"], "not a database"),
        (["show", "abc", "--db", "foreign.db"], "not one of nlq's"),
        (["report"], "say which table"),
        (["report", "--table1", "--evidence"], "only one of --table1, --evidence"),
        (["report", "--why", "a", "--html", "out"], "only one of --why, --html"),
        (["report", "--points", "points.csv"], "--points belongs to --surface"),
        (["report", "--table1"], "no such database"),
        (["report", "--published", "--format", "html"], "no table format"),
        (["report", "--published", "--out", "spec.yaml/t.md"], "--out FILE, in a folder that you may write"),
        (["report", "--published", "--out", "sub/t.xls"], "--out sub/t.md"),
        (["report", "--html", "sub/page.html"], "--html sub/page/"),
        (["plot"], "say which figure"),
        (["plot", "training-dynamic"], "no such database"),
        (["export", "losses"], 'nothing called "losses"'),
        (["export", "steps", "--format", "parquet"], "needs a file"),
        (["export", "steps", "--format", "xls"], "no export format"),
        (["variants", "nonlinear"], 'did you mean "nonlinear_q"?'),
        (["bench", "--size", "smal"], 'did you mean "small"?'),
        (["bench", "--threads", "1000"], "--threads 1000"),
        (["bench", "--device", "cuda:9"], "--device cuda:9"),
        (["bench", "--rounds", "0"], "--rounds 0"),
        (["bench", "--seconds", "nan"], "--seconds nan"),
        (["frobnicate"], "No such command"),
        (["sweep"], "Missing argument"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_bad_command(nlq: Run, write_spec: Run, tmp_path: Path, command: list[str], message: str) -> None:
    write_spec("arms: {a: {}}")
    (tmp_path / "text.txt").write_text("no database, only text, and enough of it to look at " * 20)
    sqlite3.connect(tmp_path / "foreign.db").execute("CREATE TABLE t (x)").connection.close()
    before = files(tmp_path)
    done = nlq(*command)
    assert done.code == 2
    assert message in done.err
    assert "Traceback" not in done.err
    assert files(tmp_path) == before


def test_an_unknown_figure_or_sweep_is_named(nlq: Run, write_spec: Run) -> None:
    nlq("sweep", write_spec("name: mine\narms: {a: {}}"), "--runner", "inline")
    assert 'did you mean "training-dynamics"?' in nlq("plot", "training-dynamic").err.replace("_", "-")
    assert 'did you mean "mine"?' in nlq("status", "--sweep", "mne").err
    assert nlq("report", "--table1", "--sweep", "mne").code == 2
    assert ".png, .pdf or .svg" in nlq("plot", "training-dynamics", "--out", "f.gif").err


def test_a_newer_database_is_left_alone(nlq: Run, write_spec: Run, tmp_path: Path) -> None:
    spec = write_spec("arms: {a: {}}")
    nlq("sweep", spec, "--runner", "inline")
    db = sqlite3.connect(tmp_path / "runs.db")
    db.execute("INSERT INTO _sqlite_migrations (migration_set, name, applied_at) VALUES ('nlq', '9999_future', '')")
    db.commit()
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    db.close()
    before = (tmp_path / "runs.db").read_bytes()
    for command in (["sweep", spec], ["status"], ["report", "--table1"]):
        done = nlq(*command)
        assert done.code == 2
        assert "newer nlq" in done.err
    assert (tmp_path / "runs.db").read_bytes() == before


def test_a_read_only_folder(nlq: Run, write_spec: Run, tmp_path: Path) -> None:
    spec = write_spec("arms: {a: {}}")
    folder = tmp_path / "closed"
    folder.mkdir()
    folder.chmod(0o555)
    command = [sys.executable, "-m", "nlq", "sweep", str(spec), "--db", str(folder / "runs.db")]
    reduced = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"] if os.geteuid() == 0 else []
    done = subprocess.run([*reduced, *command], capture_output=True, text=True, check=False)
    if "setpriv" in done.stderr:
        pytest.skip("root cannot be told that a folder is closed here")
    assert done.returncode == 2
    assert "cannot be written" in done.stderr
    assert list(folder.iterdir()) == []


def test_a_traceback_is_shown_only_when_asked(nlq: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nlq.commands.doctor.doctor", lambda *_, **__: 1 / 0)
    done = nlq("doctor")
    assert done.code == 1
    assert "ZeroDivisionError" in done.err
    assert "--debug" in done.err
    with pytest.raises(ZeroDivisionError):
        nlq("--debug", "doctor")
