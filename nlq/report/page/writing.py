"""The page as one HTML document that needs nothing else: style, code and data stand inside it."""

from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files

from nlq.report._sheet import Cell, Sheet
from nlq.report.page.curves import NAMES
from nlq.report.page.markup import Html, data, digest, join, script, tag
from nlq.report.page.reading import Card, Page
from nlq.report.page.tables import COMPARED, MEANS, Shown
from nlq.stats.printing import DASH, plural

LIBRARY = "plotly", "package_data/plotly.min.js"
"""The plotting library as its own package carries it."""

ALLOWED = "style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; form-action 'none'"
"""By the page's policy, beside its own scripts: plotly sets styles, and saves a chart by way of an image."""

BOWLS = (
    "Mean over the tuning seeds, on the split that selects. The open, larger mark is the chosen point; a narrow "
    "diamond, the lowest point of the parabola through the best three; a cross at the top, a point of which a seed "
    "diverged. Of the arms those chosen above are drawn."
)

COLOURS, MARKS = 7, "●■▲◆▼✚⬟★"
"""Of arms: as many as the style sheet has, and what the curves are drawn with, as `SYMBOLS` of the page's code."""

SECTIONS = (
    ("verdict", "Verdict"),
    ("table", "Table 1"),
    ("reasons", "Reasons"),
    ("curves", "Curves"),
    ("bowls", "Learning rates"),
    ("budgets", "Tuning"),
    ("equivalents", "Equivalents"),
    ("measured", "How it was measured"),
    ("files", "Files"),
)


def document(page: Page) -> str:
    """The whole page. The same page gives the same text: it holds no time of day and no name of a folder."""
    code = files(LIBRARY[0]).joinpath(LIBRARY[1]).read_text(encoding="utf-8"), _beside("page.js")
    body = tag(
        "body",
        _header(page),
        tag("main", *_sections(page), id="main"),
        _dialog(),
        data("nlq", _data(page)),
        *map(script, code),
    )
    return f"<!doctype html>\n{tag('html', _head(page, code), body, lang='en')}\n"


def file_names(shown: Shown) -> dict[str, str]:
    """The files beside the page that hold a table, by format."""
    return {"latex": f"{shown.key}.tex", "csv": f"{shown.key}.csv"}


def _beside(name: str) -> str:
    return files("nlq.report.page").joinpath(name).read_text(encoding="utf-8")


def _head(page: Page, code: Sequence[str]) -> Html:
    """The policy lets the page's own two scripts run, by their digests, and nothing be loaded from anywhere."""
    scripts = " ".join(map(digest, code))
    policy = f"default-src 'none'; script-src {scripts}; {ALLOWED}"
    return tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", f"{page.sweep} · nlq"),
        tag("style", Html(_beside("page.css"))),
    )


def _header(page: Page) -> Html:
    links = [tag("a", title, href=f"#{key}") for key, title in SECTIONS]
    return tag(
        "header",
        tag("a", "Skip to the verdict", href="#main", class_="skip"),
        tag("p", "nlq · ", tag("strong", page.sweep)),
        tag("nav", *links, aria_label="Sections"),
        tag("button", "Dark", type="button", id="theme", aria_pressed="false"),
        tag("noscript", tag("p", "Curves and the runs behind a number need JavaScript; the tables do not.")),
    )


def _sections(page: Page) -> list[Html]:
    shown = {table.key: table for table in page.tables}
    inside: Mapping[str, tuple[Html, ...]] = {
        "verdict": _verdict(page),
        "table": _main_tables(shown),
        "reasons": tuple(_reasons(card, shown[card.why]) for card in page.cards)
        or (_none("no arm beside the baseline"),),
        "curves": _curves(page),
        "bowls": _bowls(page, shown["every-point"]),
        "budgets": (_table(shown["budgets"]),),
        "equivalents": (
            _table(shown["equivalents"])
            if shown["equivalents"].behind
            else _none("every arm is the baseline, in one size or another"),
        ),
        "measured": (_facts(page),),
        "files": _files(page),
    }
    return [
        tag("section", tag("h2", title, id=f"{key}-title"), *inside[key], id=key, aria_labelledby=f"{key}-title")
        for key, title in SECTIONS
    ]


def _none(text: str) -> Html:
    return tag("p", f"{DASH} {text}", class_="quiet")


def _verdict(page: Page) -> tuple[Html, ...]:
    limits = [tag("h3", "What limits the comparison"), tag("ul", *(tag("li", line) for line in page.limits))]
    return (
        tag("h1", page.question),
        tag("p", page.answer, class_="answer"),
        tag("div", *map(_card, page.cards), class_="cards"),
        *(limits if page.limits else []),
        tag("p", page.origin, tag("br"), page.where, class_="quiet"),
    )


def _card(card: Card) -> Html:
    needed = f"{plural(card.needed, 'more fresh seed')} needed" if card.needed else ""
    return tag(
        "article",
        tag("h3", card.label),
        tag("p", card.word, class_="word"),
        tag("ul", *(tag("li", text) for text in card.effects or (f"{DASH} no difference to show",)), class_="effect"),
        tag("p", f"not confirmed: {card.unconfirmed}") if card.unconfirmed else "",
        tag("ul", *(tag("li", reason) for reason in card.reasons)) if card.reasons else "",
        tag("p", tag("strong", needed)) if needed else "",
        tag("p", " · ".join(card.badges), class_="quiet"),
        tag("p", tag("a", "step by step", href=f"#{card.why}")),
        class_=f"card {card.word}",
    )


def _main_tables(shown: Mapping[str, Shown]) -> tuple[Html, ...]:
    hint = "Click a cell, or move with the arrow keys and press Enter, to see the runs behind it."
    more = [_folded(shown[key]) for key in ("table1", "evidence")]
    return tag("p", hint, class_="quiet"), _table(shown["table1-evidence"]), *more


def _reasons(card: Card, table: Shown) -> Html:
    return tag("details", tag("summary", card.label, ": ", tag("b", card.word)), _table(table), id=card.why)


def _folded(table: Shown) -> Html:
    return tag("details", tag("summary", table.sheet.title), _table(table))


def _table(table: Shown) -> Html:
    """The table in a box of its own that scrolls sideways, its notes below."""
    sheet = table.sheet
    head = tag("tr", *(tag("th", c.header, scope="col", class_="n" if c.numeric else None) for c in sheet.columns))
    body = [_row(sheet, cells, first=number == 0) for number, cells in enumerate(sheet.cells)]
    grid = tag("table", tag("thead", head), tag("tbody", *body), data_key=table.key, aria_label=sheet.title)
    notes = tag(
        "details", tag("summary", "Notes"), tag("ul", *(tag("li", note) for note in sheet.notes), class_="quiet")
    )
    return tag("div", tag("h3", sheet.title), tag("div", grid, class_="wide"), notes, _links(table), class_="table")


def _row(sheet: Sheet, cells: Sequence[Cell], first: bool) -> Html:
    made = [
        _cell(cell, column.numeric, number == 0, first and number == 0)
        for number, (column, cell) in enumerate(zip(sheet.columns, cells, strict=True))
    ]
    return tag("tr", *made)


def _cell(cell: Cell, numeric: bool, head: bool, reached: bool) -> Html:
    """A button, since it opens something; one of a table is reached by Tab, the others by arrows from there."""
    said = _unbroken(cell.text + cell.mark) if numeric else cell.text + cell.mark
    text = tag("b", said) if cell.bold else said
    button = tag("button", text, type="button", tabindex="0" if reached else "-1", aria_haspopup="dialog")
    kind = {"class_": "n" if numeric else None}
    return tag("th", button, scope="row", **kind) if head else tag("td", button, **kind)


def _unbroken(text: str) -> str:
    """A number and its interval may stand on two lines, but neither is broken."""
    for together in (" %", "± ", ", "):
        text = text.replace(together, together.replace(" ", "\N{NO-BREAK SPACE}"))
    return text.replace(" ±", "\N{NO-BREAK SPACE}±")


def _links(table: Shown) -> Html:
    names = file_names(table)
    return tag("p", tag("a", "LaTeX", href=names["latex"]), " · ", tag("a", "CSV", href=names["csv"]), class_="quiet")


def _curves(page: Page) -> tuple[Html, ...]:
    arms = [_check(number, label, colour) for number, (label, colour) in enumerate(_coloured(page))]
    known = [name for name in _names(page) if any(name in line.series for line in page.lines)]
    return (
        tag("fieldset", tag("legend", "Arms"), *arms, id="arms"),
        tag(
            "div",
            _select("values", "Show", {name: NAMES.get(name, f"Loss, split {name}") for name in known}),
            _select(
                "axis", "over", {"steps": "steps", "tokens": "tokens", "flops": "FLOPs", "seconds": "training time"}
            ),
            _select("points", "of", {"best": "each arm's best point", "all": "every point"}),
            _select("fit", "zoom", {"late": "end of training", "all": "whole curve"}),
            class_="controls",
        ),
        *_chart("curve", "Curves of every run"),
        tag("p", id="curve-missing", class_="quiet"),
        tag("p", page.thinned, " Time counts training steps, evaluations apart.", class_="quiet"),
    )


def _names(page: Page) -> list[str]:
    """The shown split first, then what else is known, then whatever has no name here."""
    found = {name for line in page.lines for name in line.series}
    return list(dict.fromkeys([page.split, *(name for name in NAMES if name in found), *sorted(found)]))


def _bowls(page: Page, table: Shown) -> tuple[Html, ...]:
    if not page.bowls:
        return _none("no arm has points with a learning rate of their own"), _folded(table)
    arms = [tag("li", _drawn(number, colour), label) for number, (label, colour) in enumerate(_coloured(page))]
    key = tag("ul", *arms, class_="key")
    return key, *_chart("bowl", "Loss by learning rate"), tag("p", BOWLS, class_="quiet"), _folded(table)


def _chart(name: str, label: str) -> tuple[Html, ...]:
    keys = "Arrow keys: left and right along a curve, up and down to the next one; + and − zoom, 0 shows all."
    box = tag(
        "div",
        id=name,
        class_="chart",
        tabindex="0",
        role="application",
        aria_label=f"{label}. {keys}",
        data_keys=keys,
    )
    return box, tag("p", keys, id=f"{name}-said", class_="said", aria_live="polite")


def _coloured(page: Page) -> Iterator[tuple[str, str]]:
    """Every arm with its colour's name: ink for the baseline, the others by their order, as in the figures."""
    others = [arm for arm, _ in page.arms if arm != page.baseline]
    for arm, label in page.arms:
        yield label, "ink" if arm == page.baseline else f"c{others.index(arm) % COLOURS}"


def _check(number: int, label: str, colour: str) -> Html:
    box = tag("input", type="checkbox", id=f"arm-{number}", checked=True)
    return tag("label", box, _drawn(number, colour), label, for_=f"arm-{number}")


def _drawn(number: int, colour: str) -> Html:
    """An arm's colour and mark."""
    mark = tag("span", MARKS[number % len(MARKS)], aria_hidden="true")
    return join(tag("span", class_=f"swatch {colour}"), mark)


def _select(name: str, label: str, options: Mapping[str, str]) -> Html:
    inside = [tag("option", text, value=value) for value, text in options.items()]
    return tag("label", f"{label} ", tag("select", *inside, id=name), for_=name)


def _facts(page: Page) -> Html:
    return tag(
        "dl", *(part for name, value in page.measured for part in (tag("dt", name), tag("dd", value))), class_="facts"
    )


def _files(page: Page) -> tuple[Html, ...]:
    rows = [
        tag(
            "li",
            table.sheet.title,
            ": ",
            tag("a", names["latex"], href=names["latex"]),
            ", ",
            tag("a", names["csv"], href=names["csv"]),
        )
        for table in page.tables
        for names in [file_names(table)]
    ]
    return tag("p", "Every table as LaTeX (booktabs) and as CSV, in the folder of this page:"), tag("ul", *rows)


def _dialog() -> Html:
    close = tag("button", "Close", type="button", id="close")
    return tag("dialog", tag("div", id="behind"), tag("p", close), id="dialog", aria_labelledby="behind-title")


def _data(page: Page) -> dict[str, object]:
    """What the page's code reads. Runs are named by their place in `runs`."""
    places = {run.run_id: number for number, run in enumerate(page.runs)}
    arms = {arm: number for number, (arm, _) in enumerate(page.arms)}
    return {
        "arms": [{"label": label, "baseline": arm == page.baseline} for arm, label in page.arms],
        "runs": [run._asdict() for run in page.runs],
        "lines": [
            {
                **line._asdict(),
                "arm": arms[line.arm],
                "series": {name: one._asdict() for name, one in line.series.items()},
            }
            for line in page.lines
        ],
        "bowls": [
            {**bowl._asdict(), "arm": arms[bowl.arm], "dips": [dip._asdict() for dip in bowl.dips]}
            for bowl in page.bowls
        ],
        "names": {name: NAMES.get(name, f"Loss, split {name}") for name in _names(page)},
        "tables": {table.key: _behind(table, places) for table in page.tables},
    }


def _behind(table: Shown, places: Mapping[str, int]) -> dict[str, object]:
    columns = [
        {"header": c.header, "means": MEANS.get(c.header, ""), "both": c.header in COMPARED}
        for c in table.sheet.columns
    ]
    rows = [{"own": [places[i] for i in row.own], "both": [places[i] for i in row.both]} for row in table.behind]
    return {"columns": columns, "rows": rows}
