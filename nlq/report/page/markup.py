"""HTML that is safe by construction: text is escaped wherever it enters, and only elements made here are not."""

import base64
import hashlib
import html
import json
from typing import Any

from nlq.report.render import strict


class Html(str):
    """Markup that needs no escaping."""

    __slots__ = ()


VOID = ("meta", "br", "input")
"""Elements without an end."""


def tag(name: str, /, *children: str, **attributes: str | bool | None) -> Html:
    """An element. Attributes: `class_` is class, `data_x` is data-x; True stands alone, None and False are left out."""
    known = {key.rstrip("_").replace("_", "-"): value for key, value in attributes.items()}
    inside = "".join(f" {key}" if value is True else _attribute(key, value) for key, value in known.items())
    if name in VOID:
        return Html(f"<{name}{inside}>")
    return Html(f"<{name}{inside}>{join(*children)}</{name}>")


def join(*children: str) -> Html:
    """Children after one another; whatever is no markup yet is escaped."""
    return Html("".join(child if isinstance(child, Html) else html.escape(child) for child in children))


def data(name: str, value: Any) -> Html:
    """A JSON document inside the page: strict, ASCII, and with no "<" that could end the element."""
    text = json.dumps(strict(value), allow_nan=False, separators=(",", ":"))
    safe = text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    return Html(f'<script type="application/json" id="{name}">{safe}</script>')


def script(text: str) -> Html:
    """Code inside the page; it comes with nlq and its libraries, never from a user."""
    assert "</script" not in text.lower()
    assert "<!--" not in text
    return Html(f"<script>{text}</script>")


def digest(text: str) -> str:
    """A script's name in a content security policy."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _attribute(key: str, value: str | bool | None) -> str:
    return "" if value is None or value is False else f' {key}="{html.escape(str(value))}"'
