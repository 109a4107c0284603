"""`nlq status --watch`: the live table of a sweep, until all its runs have ended or Ctrl-C."""

import signal
import time
from pathlib import Path
from types import FrameType

from nlq.commands._console import console
from nlq.commands._progress import Progress
from nlq.commands._table import live_table
from nlq.store.reader import Reader

POLL_S = 0.1
EXIT_INTERRUPTED = 130
ROWS_WITHOUT_TERMINAL = 10_000


def watch(db: Path, sweep: str | None) -> int:
    """Show a sweep as it trains, wherever that happens, and return the exit code. The last table stays."""
    reader, screen = Reader(db), console()
    asked: list[int] = []  # a flag, not an exception: one that is raised in a callback of a library is lost there

    def leave(number: int, _frame: FrameType | None) -> None:
        asked.append(number)

    before = {number: signal.signal(number, leave) for number in (signal.SIGINT, signal.SIGTERM)}
    progress = Progress(reader, reader.sweep(sweep).name, screen, everything=True)
    try:
        with progress:
            while not progress.over and not asked:
                time.sleep(POLL_S)
                progress.tick()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        most = screen.size.height if screen.is_terminal else ROWS_WITHOUT_TERMINAL
        screen.print(live_table(progress.rows(most)))
    return EXIT_INTERRUPTED if asked else 0
