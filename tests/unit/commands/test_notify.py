"""What --notify accepts, what it sends, and that nothing of it can fail a sweep."""

import json
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from nlq.commands._notify import Notifier, way_of
from nlq.core.errors import NlqError

PASS_ON = "import os, sys; open(sys.argv[1], 'a').write(' '.join(os.environ[f'NLQ_{n}'] for n in sys.argv[2:]))"


class Listener(BaseHTTPRequestHandler):
    """Keeps what is posted."""

    posted: list[dict[str, str]]
    answer: int

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        assert self.headers["Content-Type"] == "application/json"
        self.posted.append(json.loads(body))
        self.send_response(self.answer)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def listener(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Listener]]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    kind = type("Kept", (Listener,), {"posted": [], "answer": 200})
    server = HTTPServer(("127.0.0.1", 0), kind)
    kind.url = f"http://127.0.0.1:{server.server_port}/hook"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield kind
    server.shutdown()
    thread.join()
    server.server_close()


def told(value: str) -> list[str]:
    """Tells of a failed run and of a sweep's end; the warnings."""
    warnings: list[str] = []
    with Notifier(way_of(value), warnings.append) as notifier:
        notifier.tell("run_failed", "s", "4c3bce", "code_error: α")
        notifier.tell("sweep_ended", "s", "", "1 failed")
    return warnings


def test_a_webhook_is_posted(listener: type[Listener]) -> None:
    assert told(listener.url) == []
    assert [news["event"] for news in listener.posted] == ["run_failed", "sweep_ended"]
    assert listener.posted[0] == {"event": "run_failed", "sweep": "s", "run": "4c3bce", "message": "code_error: α"}


def test_a_webhook_that_refuses_is_one_warning_each(listener: type[Listener]) -> None:
    listener.answer = 500
    warnings = told(listener.url)
    assert len(warnings) == 2
    assert "500" in warnings[0] or "Internal" in warnings[0]


def test_nobody_listens() -> None:
    assert ["refused" in warning for warning in told("http://127.0.0.1:9/")] == [True, True]


def test_a_command_runs_without_a_shell(tmp_path: Path) -> None:
    out = tmp_path / "a file; with $signs"
    assert told(f'{sys.executable} -c "{PASS_ON}" "{out}" EVENT SWEEP RUN') == []
    assert out.read_text() == "run_failed s 4c3bcesweep_ended s "


def test_a_failing_command_is_one_warning_each() -> None:
    warnings = told(f'{sys.executable} -c "raise SystemExit(3)"')
    assert [warning.endswith("the command ended with code 3") for warning in warnings] == [True, True]


def test_a_bell(capsys: pytest.CaptureFixture[str]) -> None:
    assert told("bell") == []
    assert capsys.readouterr().err == "\a\a"


def test_off_by_default() -> None:
    with Notifier(way_of(None), pytest.fail) as notifier:
        notifier.tell("sweep_ended", "s", "", "")


@pytest.mark.parametrize(
    "value", ["", "  ", "no-such-command-anywhere", "'open", "ftp://host/x", "https://", "http://a:b"]
)
def test_what_could_never_work_is_refused(value: str) -> None:
    with pytest.raises(NlqError) as refused:
        way_of(value)
    assert "--notify bell" in refused.value.hint
