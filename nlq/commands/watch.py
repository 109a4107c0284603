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
    before = signal.signal(signal.SIGTERM, _leave)
    progress = Progress(reader, reader.sweep(sweep).name, screen, everything=True)
    try:
        with progress:
            while not progress.over:
                time.sleep(POLL_S)
                progress.tick()
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    finally:
        signal.signal(signal.SIGTERM, before)
        most = screen.size.height if screen.is_terminal else ROWS_WITHOUT_TERMINAL
        screen.print(live_table(progress.rows(most)))
    return 0


def _leave(_number: int, _frame: FrameType | None) -> None:
    """As Ctrl-C, so that the cursor is shown again."""
    raise KeyboardInterrupt
