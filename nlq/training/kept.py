"""What was measured on this machine, kept between commands."""

import json
from pathlib import Path
from typing import Any

from nlq.core.disk import put


class Kept:
    """JSON values by key in one file. A file that is damaged, or not there, holds nothing."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def get(self, key: str) -> Any | None:
        """The value of a key, or None."""
        return self._all().get(key)

    def put(self, key: str, value: Any) -> None:
        """Keep a value beside what others have kept meanwhile. Raises OSError where nothing can be written."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        values = {**self._all(), key: value}
        put(self.path, lambda aside: aside.write_text(json.dumps(values), encoding="utf-8"))

    def _all(self) -> dict[str, Any]:
        try:
            values: dict[str, Any] = json.loads(self.path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return values if isinstance(values, dict) else {}
