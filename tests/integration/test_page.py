"""The page in headless Chromium, without a network: what it shows, what it says of a point, and how keys steer it."""

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nlq.store.reader import Reader

Run = Callable[..., object]
Opened = Callable[..., object]

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
BROWSERS = ("chromium", "chromium-browser", "google-chrome")

TRAINED = """
name: trained
arms:
  baseline: {label: Baseline}
  nonlinear-q: {model.variant: nonlinear_q, label: "<img src=x onerror=alert(1)><b>Res</b> %{y} &amp;"}
grid: {optim.lr_max: [1e-3, 3e-3]}
seeds: [0, 1]
"""

IMPORTED = """
name: elsewhere
baseline: tuned
base: {model: {layers: 2, heads: 4, width: 64, context: 32, vocab: 320}}
runs:
  - {file: curve.csv, arm: tuned, label: "Baseline", point: {optim.lr_max: 1e-3}}
  - {file: curve.csv, arm: tuned, point: {optim.lr_max: 4e-3}, diverged: 200}
  - {final: {step: 300, val_loss: 2.25}, arm: printed, label: "Printed", point: {optim.lr_max: 2e-3}}
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[object]:
    """One browser for all of these tests. Where CI is set, a machine without one fails."""
    found = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if found is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)("no chromium on this machine: apt-get install chromium")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as made:
        opened = made.chromium.launch(executable_path=found, args=FLAGS)
        yield opened
        opened.close()


@pytest.fixture
def opened(browser) -> Iterator[Opened]:
    """Opens a file without a network; afterwards nothing may have been asked for or complained about."""
    wrong: list[str] = []
    contexts = []

    def show(path: Path, **options: object) -> object:
        context = browser.new_context(offline=True, **options)
        contexts.append(context)
        page = context.new_page()
        url = path.resolve().as_uri()
        page.on("console", lambda said: wrong.append(said.text))
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("dialog", lambda dialog: wrong.append(dialog.message) or dialog.dismiss())
        page.on("request", lambda request: wrong.append(request.url) if not _own(request.url, url) else None)
        page.goto(url)
        page.wait_for_selector("#curve .modebar", state="attached")
        return page

    yield show
    for context in contexts:
        context.close()
    assert wrong == []


def _own(url: str, page: str) -> bool:
    return url.split("#")[0] == page or url.startswith(("data:", "blob:"))


@pytest.fixture
def trained(nlq: Run, write_spec: Run, tmp_path: Path) -> Path:
    """The page of eight small trainings."""
    assert nlq("sweep", write_spec(TRAINED)).code == 0
    done = nlq("report", "--html", "out")
    assert (done.code, done.out.strip()) == (0, "out/index.html")
    return tmp_path / "out" / "index.html"


@pytest.fixture
def imported(nlq: Run, tmp_path: Path) -> Path:
    """The page of a database that holds imported runs only, one of them diverged."""
    rows = "\n".join(f"{step},{2.3 + 3 / (1 + step / 20)}" for step in range(0, 301, 50))
    (tmp_path / "curve.csv").write_text(f"step,val_loss\n{rows}\n")
    (tmp_path / "elsewhere.yaml").write_text(IMPORTED)
    assert nlq("import", "elsewhere.yaml").code == 0
    assert nlq("report", "--html", "out").code == 0
    return tmp_path / "out" / "index.html"


def test_a_trained_sweep(trained: Path, opened: Opened, tmp_path: Path) -> None:
    page = opened(trained, viewport={"width": 1200, "height": 800})
    assert "really better than Baseline" in page.inner_text("h1")
    _hover_says_what_the_database_has(page, Reader(tmp_path / "runs.db"))
    _cells_open_the_runs_behind_them(page)
    _keys_choose_arms_and_axes(page)
    _light_and_dark(page)


def _hover_says_what_the_database_has(page, reader: Reader) -> None:
    page.locator("#fit").select_option("all")
    page.locator("#curve").scroll_into_view_if_needed()
    trace = page.evaluate("(({x, y, meta}) => ({x, y, meta}))(document.getElementById('curve').data.at(-1))")
    run = trace["meta"][1]
    losses = {e.step: e.loss_nats for e in reader.evals([run])[run] if e.split == "confirm"}
    assert dict(zip(trace["x"], trace["y"], strict=True)) == losses
    x, y = page.evaluate("""() => {
        const chart = document.getElementById("curve"), trace = chart.data.at(-1), at = trace.x.length - 1;
        const box = chart.getBoundingClientRect(), {xaxis, yaxis} = chart._fullLayout;
        return [box.x + xaxis._offset + xaxis.d2p(trace.x[at]), box.y + yaxis._offset + yaxis.d2p(trace.y[at])];
    }""")
    page.mouse.move(x - 2, y)
    page.mouse.move(x, y)
    label = page.locator("#curve .hoverlayer .hovertext").first
    label.wait_for()
    shown = label.text_content()
    said = page.inner_text("#curve-said")
    hovered = next(t for t in _traces(page) if t[1] in shown)
    step, loss = max((e.step, e.loss_nats) for e in reader.evals([hovered[1]])[hovered[1]] if e.split == "confirm")
    assert f"step {step}" in shown
    assert repr(loss) in shown
    assert said.endswith(f"run {hovered[1]}, step {step}: {loss!r}")


def _traces(page) -> list[list[str]]:
    return page.evaluate("document.getElementById('curve').data.map((trace) => trace.meta)")


def _cells_open_the_runs_behind_them(page) -> None:
    first = page.locator("table[data-key=table1-evidence] tbody button").first
    first.focus()
    page.keyboard.press("ArrowDown")
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    said = page.inner_text("#dialog")
    assert "<b>Res</b> %{y} &amp; · δ, nats" in said
    assert "4 runs stand behind this cell." in said
    assert all(name in said for name in ("commit", "training data hash", "windows hash", "spec key", "Resolved spec"))
    page.keyboard.press("Escape")
    assert not page.locator("#dialog").is_visible()


def _keys_choose_arms_and_axes(page) -> None:
    """Tab, Space and the arrow keys alone."""
    page.locator("#arm-0").focus()
    page.keyboard.press("Space")
    assert {meta[0] for meta in _traces(page)} == {
        f"&lt;img src=x onerror=alert(1)&gt;&lt;b&gt;Res&lt;/b&gt; %&#123;y}} &amp;amp;, η_max 3e-3, seed {seed}"
        for seed in (0, 1)
    }
    page.keyboard.press("Space")
    for name in ("arm-1", "values", "axis"):
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.id") == name
    for title in ("Training tokens", "Training FLOPs", "Training time (s)"):
        page.keyboard.press("ArrowDown")
        assert page.evaluate("document.getElementById('curve').layout.xaxis.title.text") == title
    for _ in range(3):
        page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "curve"
    page.keyboard.press("ArrowRight")
    first = page.inner_text("#curve-said")
    page.keyboard.press("ArrowRight")
    assert page.inner_text("#curve-said") != first
    assert "step 4:" in page.inner_text("#curve-said")
    before = page.evaluate("document.getElementById('curve').layout.xaxis.range")
    page.keyboard.press("+")
    assert page.evaluate("document.getElementById('curve').layout.xaxis.range") != before


def _light_and_dark(page) -> None:
    colour = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(colour)
    page.locator("#theme").focus()
    page.keyboard.press("Enter")
    assert page.evaluate(colour) != light
    assert page.evaluate("document.getElementById('curve').layout.paper_bgcolor") == page.evaluate(colour)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_imported_and_diverged_runs_on_a_phone(imported: Path, opened: Opened, scheme: str) -> None:
    page = opened(imported, viewport={"width": 390, "height": 844}, color_scheme=scheme, has_touch=True)
    for chosen in ("seconds", "tokens"):
        page.locator("#axis").select_option(chosen)
        assert page.inner_text("#curve-missing").startswith("Not drawn, for want of such values: Baseline")
    page.locator("#axis").select_option("steps")
    page.locator("#points").select_option("all")
    assert page.evaluate("document.getElementById('curve').data.some((trace) => trace.marker.symbol.includes('x'))")
    assert page.evaluate("document.getElementById('bowl').data.some((trace) => trace.marker.symbol === 'x')")
    for details in page.locator("details").all():
        details.evaluate("(element) => { element.open = true; }")
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    assert page.evaluate("document.getElementById('curve').getBoundingClientRect().right") <= 390
    assert "imported: data order and evaluation windows are not known" in page.inner_text("main")


def test_the_same_bytes_twice_and_tables_beside(imported: Path, nlq: Run, tmp_path: Path) -> None:
    done = nlq("report", "--html", "again", "--json")
    written = json.loads(done.out)
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert sorted(Path(path).name for path in [written["page"], *written["files"]]) == names
    for name in names:
        assert (tmp_path / "again" / name).read_bytes() == (tmp_path / "out" / name).read_bytes()
    assert r"\toprule" in (tmp_path / "out" / "table1-evidence.tex").read_text()
    assert (tmp_path / "out" / "every-point.csv").read_text().startswith("arm,label,")
    text = imported.read_text(encoding="utf-8")
    assert all(f'href="{name}"' in text for name in names if name != "index.html")


def test_nothing_to_show_writes_nothing(nlq: Run, tmp_path: Path) -> None:
    done = nlq("report", "--html", "out")
    assert (done.code, done.out) == (2, "")
    assert 1 <= len(done.err.splitlines()) <= 4
    assert not (tmp_path / "out").exists()


def test_a_file_is_no_folder(imported: Path, nlq: Run, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("kept")
    done = nlq("report", "--html", "mine")
    assert (done.code, "mine: is a file, not a folder" in done.err, "cannot be written" in done.err) == (2, True, False)
    assert (tmp_path / "mine").read_text() == "kept"
    done = nlq("report", "--html", "mine/page")
    assert (done.code, "--html FOLDER, in a place that you may write" in done.err) == (2, True)


def test_an_empty_database_writes_nothing(imported: Path, nlq: Run, tmp_path: Path) -> None:
    import sqlite3

    with sqlite3.connect(tmp_path / "runs.db") as db:
        db.execute("DELETE FROM sweep_runs")
        db.execute("DELETE FROM sweeps")
    done = nlq("report", "--html", "empty")
    assert done.code == 2
    assert "no sweep yet" in done.err
    assert not (tmp_path / "empty").exists()


@pytest.mark.parametrize(
    "words",
    [
        ["--html", "out", "--table1"],
        ["--html", "out", "--format", "csv"],
        ["--html", "out", "--out", "x.csv"],
        ["--html", "page.html"],
        ["--html", "out", "--all"],
    ],
)
def test_options_that_belong_to_tables(nlq: Run, words: list[str], tmp_path: Path) -> None:
    assert nlq("report", *words).code == 2
    assert not (tmp_path / "out").exists()
