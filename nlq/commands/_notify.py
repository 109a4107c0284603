"""`--notify`: a bell, a command or a webhook, when a sweep ends or a run fails. What goes wrong here is one warning."""

import json
import os
import shlex
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from urllib.parse import urlsplit

from nlq.core.errors import NlqError

BELL = "bell"
WEBHOOK_TIMEOUT_S = 5.0
COMMAND_TIMEOUT_S = 60.0
FORMS = "--notify bell; --notify https://HOST/PATH; --notify 'COMMAND ARGUMENT …'"
RUN_FAILED, SWEEP_ENDED = "run_failed", "sweep_ended"


@dataclass(frozen=True)
class News:
    """What has happened: `event` is run_failed or sweep_ended; `sweep` and `run` are empty where none is meant."""

    event: str
    sweep: str
    run: str
    message: str


Way = Callable[[News], None]


class Notifier:
    """Tells in the background, one after the other, so that training waits for nobody."""

    def __init__(self, way: Way | None, warn: Callable[[str], None]) -> None:
        self.way, self.warn = way, warn
        self._thread = ThreadPoolExecutor(1) if way else None

    def __enter__(self) -> "Notifier":
        return self

    def __exit__(self, *_: object) -> None:
        if self._thread:
            self._thread.shutdown(wait=True)

    def tell(self, event: str, sweep: str, run: str, message: str) -> None:
        """Pass on one piece of news."""
        if self._thread and self.way:
            self._thread.submit(self._try, self.way, News(event, sweep, run, message))

    def _try(self, way: Way, news: News) -> None:
        try:
            way(news)
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            self.warn(f"--notify: {news.event} was not passed on: {_why(error)}")


def way_of(value: str | None) -> Way | None:
    """How to tell, from the option's value; None for not at all. Raises NlqError where it could never work."""
    if value is None:
        return None
    if value == BELL:
        return _ring
    if "://" in value.split(" ", 1)[0]:
        return _webhook(value)
    return _command(value)


def _ring(_news: News) -> None:
    sys.stderr.write("\a")
    sys.stderr.flush()


def _webhook(url: str) -> Way:
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0 and " " not in url
    except ValueError:
        usable = False
    if not usable:
        raise NlqError(f"--notify {url}: not an address that can be posted to", FORMS)

    def post(news: News) -> None:
        body = json.dumps(asdict(news)).encode()
        headers = {"Content-Type": "application/json", "User-Agent": "nlq"}
        request = urllib.request.Request(url, body, headers, method="POST")
        with urllib.request.urlopen(request, timeout=WEBHOOK_TIMEOUT_S):
            pass

    return post


def _command(text: str) -> Way:
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise NlqError(f"--notify {text}: {error}", FORMS) from error
    if not words or shutil.which(words[0]) is None:
        raise NlqError(f'--notify: no command "{words[0] if words else text}" here', FORMS)

    def run(news: News) -> None:
        told = {"NLQ_EVENT": news.event, "NLQ_SWEEP": news.sweep, "NLQ_RUN": news.run}
        subprocess.run(
            words,
            env={**os.environ, **told},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=COMMAND_TIMEOUT_S,
            check=True,
        )

    return run


def _why(error: Exception) -> str:
    if isinstance(error, subprocess.CalledProcessError):
        return f"the command ended with code {error.returncode}"
    if isinstance(error, subprocess.TimeoutExpired):
        return f"the command took over {COMMAND_TIMEOUT_S:.0f} s"
    return str(getattr(error, "reason", None) or error) or type(error).__name__
