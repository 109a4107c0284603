"""One table in every format: terminal, Markdown, LaTeX (booktabs), CSV, JSON."""

import csv
import io
import json
import math
import unicodedata
from collections.abc import Callable, Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from nlq.core.errors import NlqError, nearest
from nlq.report._sheet import Cell, Sheet

_MARKDOWN = {char: f"\\{char}" for char in "\\`*_[]<>|#~$"}

_LATEX = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "_": r"\_",
    "%": r"\%",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "[": "{[}",  # bare, after the end of a line, "[" and "*" would be read as arguments of the line break
    "*": "{*}",
    "–": "--",
    "−": r"$-$",
    "±": r"$\pm$",
    "×": r"$\times$",
    "·": r"$\cdot$",
    "…": r"\dots{}",
    "’": "'",
    "≥": r"$\geq$",
    "≤": r"$\leq$",
    "≈": r"$\approx$",
    "→": r"$\rightarrow$",
    "⭐": r"$\star$",
    "★": r"$\star$",
    "†": r"\textdagger{}",
    "‡": r"\textdaggerdbl{}",
    "√": r"$\surd$",
    "²": r"\textsuperscript{2}",
    "µ": r"$\mu$",
}

_ACCENTS = range(0xC0, 0x180)
"""Latin letters with accents: every LaTeX since 2018 takes them as they are."""


def render(sheet: Sheet, kind: str) -> str:
    """The table as text. `kind` is md, latex, csv or json; NlqError names them otherwise."""
    if kind not in FORMATS:
        raise NlqError(f'no table format "{kind}"; {nearest(kind, FORMATS)}', "--format md, latex, csv or json")
    return FORMATS[kind](sheet)


def to_rich(sheet: Sheet) -> RenderableType:
    """The table for the terminal. Text of users is never read as markup."""
    table = Table(title=Text(sheet.title, style="bold"), title_justify="left", header_style="bold")
    for column in sheet.columns:
        table.add_column(Text(column.header), justify="right" if column.numeric else "left", overflow="fold")
    for cells in sheet.cells:
        table.add_row(*(Text(_one_line(c.text + c.mark), style="bold" if c.bold else "") for c in cells))
    return Group(table, *(Text(_one_line(note), style="dim") for note in sheet.notes))


def to_markdown(sheet: Sheet) -> str:
    """A pipe table with the notes below it."""
    lines = [f"**{_markdown(sheet.title)}**", ""]
    lines.append(_pipes([_markdown(column.header) for column in sheet.columns]))
    lines.append(_pipes(["---:" if column.numeric else "---" for column in sheet.columns]))
    lines += [_pipes([_markdown_cell(cell) for cell in cells]) for cells in sheet.cells]
    lines += ["", *(f"- {_markdown(note)}" for note in sheet.notes)]
    return "\n".join(lines) + "\n"


def to_latex(sheet: Sheet) -> str:
    """A table environment with booktabs rules and the notes below; compiles with any LaTeX since 2018."""
    body = [r"\toprule", _ampersands([column.latex for column in sheet.columns]), r"\midrule"]
    body += [_ampersands([_latex_cell(cell) for cell in cells]) for cells in sheet.cells]
    alignment = "".join("r" if column.numeric else "l" for column in sheet.columns)
    notes = r"\\".join(f"\n{latex(note)}" for note in sheet.notes)
    return "\n".join(
        [
            r"% needs \usepackage{booktabs}",
            r"\begin{table}[t]",
            r"\centering",
            rf"\caption{{{latex(sheet.title)}}}",
            r"\footnotesize\setlength{\tabcolsep}{4pt}",
            rf"\begin{{tabular}}{{{alignment}}}",
            *body,
            r"\bottomrule",
            r"\end{tabular}",
            rf"\par\smallskip\begin{{minipage}}{{\linewidth}}\footnotesize{notes}",
            r"\end{minipage}",
            r"\end{table}",
            "",
        ]
    )


def to_csv(sheet: Sheet) -> str:
    """The rows of the record, numbers in full and fractions as fractions; an unknown value is an empty field."""
    rows = [{key: _flat(value) for key, value in row.items()} for row in sheet.record["rows"]]
    out = io.StringIO()
    writer = csv.DictWriter(out, fieldnames=list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def to_json(sheet: Sheet) -> str:
    """The record as strict JSON: no NaN, no Infinity, ASCII only so that no locale can break it."""
    return json.dumps(strict(sheet.record), indent=2, allow_nan=False) + "\n"


def strict(value: Any) -> Any:
    """A copy that strict JSON can hold: numbers that are not finite become None."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): strict(below) for key, below in value.items()}
    if isinstance(value, list | tuple):
        return [strict(below) for below in value]
    return value


def latex(text: str) -> str:
    """Text escaped for LaTeX. A character that plain LaTeX cannot set becomes its code point in brackets."""
    return "".join(_latex_char(char) for char in _one_line(text))


def _latex_char(char: str) -> str:
    if char in _LATEX:
        return _LATEX[char]
    if char.isascii() or ord(char) in _ACCENTS:
        return char
    name = unicodedata.name(char, "")
    if name.startswith("GREEK") and " LETTER " in name and "WITH" not in name:
        return _greek(char, name)
    return f"{{[}}U+{ord(char):04X}]"


def _greek(char: str, name: str) -> str:
    """α as $\\alpha$. A capital with a Latin twin (Α, Β) has no command of its own and is that Latin letter."""
    letter = name.rsplit(" ", 1)[-1].lower().replace("lamda", "lambda").replace("final sigma", "varsigma")
    if letter == "omicron":
        return "$o$" if char.islower() else "O"
    twins = dict(zip("ΑΒΕΖΗΙΚΜΝΡΤΧ", "ABEZHIKMNPTX", strict=True))
    return twins.get(char) or f"$\\{letter if char.islower() else letter.title()}$"


def _latex_cell(cell: Cell) -> str:
    text = latex(cell.text)
    text = rf"\textbf{{{text}}}" if cell.bold else text
    return text + (rf"\textsuperscript{{{latex(cell.mark)}}}" if cell.mark else "")


def _ampersands(cells: list[str]) -> str:
    return " & ".join(cells) + r" \\"


def _markdown(text: str) -> str:
    return "".join(_MARKDOWN.get(char, char) for char in _one_line(text))


def _markdown_cell(cell: Cell) -> str:
    text = _markdown(cell.text)
    return (f"**{text}**" if cell.bold and text.strip() else text) + _markdown(cell.mark)


def _pipes(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _one_line(text: str) -> str:
    """Control characters would break a table's lines, or steer a terminal."""
    return "".join(" " if unicodedata.category(char) in ("Cc", "Zl", "Zp") else char for char in text)


def _flat(value: Any) -> Any:
    value = strict(value)
    if isinstance(value, dict):
        return json.dumps(value)
    return " ".join(str(part) for part in value) if isinstance(value, list) else value


FORMATS: Mapping[str, Callable[[Sheet], str]] = {
    "md": to_markdown,
    "latex": to_latex,
    "csv": to_csv,
    "json": to_json,
}
