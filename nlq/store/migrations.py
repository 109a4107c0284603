"""The tables of runs.db, as numbered migrations. A migration and the record that it ran share a transaction.

A row of `steps` or `evals` exists only when its number was computed, so NULL there is NaN (SQLite has no NaN);
the infinities are stored as themselves. Everywhere else NULL is a number that is not known.
"""

from sqlite_utils import Database
from sqlite_utils.migrations import Migrations

from nlq.core.run import State

APPLICATION_ID = 0x6E6C7101

migrations = Migrations("nlq")

_STATES = ", ".join(f"'{state}'" for state in State)

_TABLES = f"""
CREATE TABLE specs (
    spec_key TEXT PRIMARY KEY,
    spec TEXT NOT NULL,
    created_at_utc TEXT NOT NULL
) STRICT;

CREATE TABLE runs (
    run INTEGER PRIMARY KEY,
    run_id TEXT NOT NULL UNIQUE,
    spec_key TEXT NOT NULL UNIQUE REFERENCES specs,
    state TEXT NOT NULL CHECK (state IN ({_STATES})),
    priority INTEGER NOT NULL DEFAULT 0,
    attempt INTEGER REFERENCES attempts,
    seed INTEGER NOT NULL,
    steps_planned INTEGER NOT NULL,
    steps_done INTEGER NOT NULL DEFAULT 0,
    last_loss_nats REAL,
    tokens_per_s REAL,
    non_embedding_params INTEGER,
    total_params INTEGER,
    flops_per_token INTEGER,
    data_hash TEXT,
    diverged_step INTEGER,
    failure_class TEXT,
    failure_message TEXT,
    queued_at_utc TEXT NOT NULL,
    started_at_utc TEXT,
    finished_at_utc TEXT
) STRICT;
CREATE INDEX runs_by_state ON runs (state, priority DESC, run);

CREATE TABLE attempts (
    attempt INTEGER PRIMARY KEY,
    run INTEGER NOT NULL REFERENCES runs,
    token TEXT NOT NULL UNIQUE,
    host TEXT NOT NULL,
    boot_id TEXT,
    pid INTEGER,
    pid_started TEXT,
    scheduler_pid INTEGER,
    scheduler_pid_started TEXT,
    slot TEXT,
    device TEXT,
    threads INTEGER,
    nlq_version TEXT,
    torch_version TEXT,
    python_version TEXT,
    git_commit TEXT,
    git_dirty INTEGER,
    claimed_at_utc TEXT NOT NULL,
    started_at_utc TEXT,
    heartbeat_at_utc TEXT,
    finished_at_utc TEXT,
    ended TEXT,
    exit_code INTEGER,
    peak_memory_bytes INTEGER,
    log_path TEXT
) STRICT;
CREATE INDEX attempts_by_run ON attempts (run);

CREATE TABLE steps (
    run INTEGER NOT NULL REFERENCES runs,
    step INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    loss_nats REAL,
    grad_norm REAL,
    lr REAL NOT NULL,
    step_ms REAL NOT NULL,
    PRIMARY KEY (run, step)
) STRICT, WITHOUT ROWID;

CREATE TABLE evals (
    run INTEGER NOT NULL REFERENCES runs,
    step INTEGER NOT NULL,
    split TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    loss_nats REAL,
    token_count INTEGER NOT NULL,
    eval_ms REAL NOT NULL,
    data_hash TEXT NOT NULL,
    PRIMARY KEY (run, step, split)
) STRICT, WITHOUT ROWID;

CREATE TABLE window_losses (
    run INTEGER NOT NULL REFERENCES runs,
    step INTEGER NOT NULL,
    split TEXT NOT NULL,
    window_sums BLOB NOT NULL,
    window_tokens BLOB NOT NULL,
    doc_ids BLOB NOT NULL,
    doc_sums BLOB NOT NULL,
    doc_tokens BLOB NOT NULL,
    PRIMARY KEY (run, step, split)
) STRICT;

CREATE TABLE sweeps (
    sweep INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    baseline TEXT NOT NULL,
    source TEXT NOT NULL,
    spec_text TEXT NOT NULL,
    created_at_utc TEXT NOT NULL,
    updated_at_utc TEXT NOT NULL
) STRICT;

CREATE TABLE sweep_runs (
    sweep INTEGER NOT NULL REFERENCES sweeps,
    position INTEGER NOT NULL,
    run INTEGER NOT NULL REFERENCES runs,
    arm TEXT NOT NULL,
    label TEXT NOT NULL,
    point TEXT NOT NULL,
    PRIMARY KEY (sweep, position)
) STRICT, WITHOUT ROWID;
CREATE INDEX sweep_runs_by_run ON sweep_runs (run);

CREATE TABLE events (
    event INTEGER PRIMARY KEY,
    run INTEGER REFERENCES runs,
    attempt INTEGER REFERENCES attempts,
    at_utc TEXT NOT NULL,
    kind TEXT NOT NULL,
    message TEXT NOT NULL
) STRICT;
CREATE INDEX events_by_run ON events (run);
"""

STALE_ATTEMPT = "rows of an attempt that is not the current one"

_CURRENT_ATTEMPT = """
CREATE TRIGGER {table}_of_current_attempt BEFORE INSERT ON {table}
WHEN NEW.attempt IS NOT (SELECT attempt FROM runs WHERE run = NEW.run AND state = 'running')
BEGIN SELECT RAISE(ABORT, '{message}'); END;
"""


_QUEUE_COLUMNS = {
    "runs": {"micro_batch": "INTEGER", "queued_source_sha256": "TEXT", "forgiven_attempt": "INTEGER"},
    "attempts": {"source_sha256": "TEXT", "device_uuid": "TEXT", "resumed_step": "INTEGER"},
    "evals": {"windows_hash": "TEXT"},
}


@migrations(name="0001_tables")
def tables(db: Database) -> None:
    """All tables, and the refusal of rows from an attempt that is no longer the current one."""
    for statement in filter(str.strip, _TABLES.split(";\n")):
        db.execute(statement)
    for table in ("steps", "evals"):
        db.execute(_CURRENT_ATTEMPT.format(table=table, message=STALE_ATTEMPT))


_IMPORT_COLUMNS = {"imported_from": "TEXT", "imported_sha256": "TEXT"}

_EVALS_WITH_UNKNOWNS = """
CREATE TABLE evals_with_unknowns (
    run INTEGER NOT NULL REFERENCES runs,
    step INTEGER NOT NULL,
    split TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    loss_nats REAL,
    token_count INTEGER,
    eval_ms REAL,
    data_hash TEXT,
    windows_hash TEXT,
    PRIMARY KEY (run, step, split)
) STRICT, WITHOUT ROWID
"""


@migrations(name="0002_resume")
def resume(db: Database) -> None:
    """What exact resume and a second try with a smaller micro-batch need, and the digest of the code that ran."""
    for table, columns in _QUEUE_COLUMNS.items():
        for name, kind in columns.items():
            db.execute(f"ALTER TABLE {table} ADD COLUMN {name} {kind}")
    db.execute("CREATE INDEX open_attempts ON attempts (slot) WHERE ended IS NULL")


@migrations(name="0003_devices")
def devices(db: Database) -> None:
    """How many slots a run needs at once."""
    db.execute("ALTER TABLE runs ADD COLUMN devices INTEGER NOT NULL DEFAULT 1")
    db.execute("CREATE INDEX runs_of_several_devices ON runs (state) WHERE devices > 1")


@migrations(name="0004_import")
def imports(db: Database) -> None:
    """Where an imported run came from; of its evaluations neither tokens nor time nor hashes are known."""
    for name, kind in _IMPORT_COLUMNS.items():
        db.execute(f"ALTER TABLE attempts ADD COLUMN {name} {kind}")
    db.execute(_EVALS_WITH_UNKNOWNS)
    db.execute(
        "INSERT INTO evals_with_unknowns SELECT run, step, split, attempt, loss_nats, token_count, eval_ms,"
        " data_hash, windows_hash FROM evals"
    )
    db.execute("DROP TABLE evals")  # its trigger goes with it
    db.execute("ALTER TABLE evals_with_unknowns RENAME TO evals")
    db.execute(_CURRENT_ATTEMPT.format(table="evals", message=STALE_ATTEMPT))


@migrations(name="0005_energy")
def energy(db: Database) -> None:
    """What the devices of an attempt used while it trained."""
    db.execute("ALTER TABLE attempts ADD COLUMN energy_joules REAL")


_NOISE = """
CREATE TABLE noise (
    noise INTEGER PRIMARY KEY,
    spec_key TEXT NOT NULL REFERENCES specs,
    sweep TEXT NOT NULL,
    arm TEXT NOT NULL,
    label TEXT NOT NULL,
    step INTEGER NOT NULL,
    split TEXT NOT NULL,
    mean_nats REAL NOT NULL,
    sigma_nats REAL NOT NULL,
    low_nats REAL NOT NULL,
    high_nats REAL NOT NULL,
    run_ids TEXT NOT NULL,
    measured_at_utc TEXT NOT NULL,
    UNIQUE (sweep, arm, step, split)
) STRICT
"""


@migrations(name="0006_evidence")
def evidence(db: Database) -> None:
    """σ of one run as `nlq noise` measured it, and the tokens of the text that an attempt trained on."""
    db.execute(_NOISE)
    db.execute("ALTER TABLE attempts ADD COLUMN train_tokens INTEGER")
