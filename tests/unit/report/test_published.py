"""The paper's Table 1 through nlq's own functions."""

import json

import pytest

from nlq.report import published
from nlq.report.render import FORMATS, render


def _md():
    return render(published.sheet(published.read()), "md")


def test_cells_that_rounding_explains_are_marked():
    lines = _md().splitlines()
    assert "| MLP 4.75 | +12.50 % | 0.1 | 6e-4 | 6e-5 | 2.9165 | 0.94 % | 2.72 % |" in lines
    assert r"| MLP 4.75, LR scaled | +12.50 % | 0.1 | 5.66e-4 | 5.66e-5 | 2.9173 | 0.91 % | 2.64 %\* |" in lines
    assert r"| Res. GELU | +0.02 %† | 0.1 | 3.6e-3 | 2e-5 | **2.8736** | **2.39 %**\* | **6.81 %** |" in lines
    assert sum(r"%\*" in line or r"**\*" in line for line in lines) == 2


def test_footnotes_give_the_printed_values():
    text = _md()
    assert "prints ΔPPX 2.65 %" in text
    assert "prints ΔLL 2.40 %; the printed losses allow 2.391 % to 2.398 %, so rounding explains it" in text
    assert "18,432" in text
    assert "2603.13381v3" in text


def test_scaling_lines():
    table = published.read()
    assert round(table.exponent, 4) == 0.0800
    assert round(100 * (table.equivalent_params_ratio - 1), 1) == 35.4
    assert "local exponent 0.0800" in _md()
    assert "equivalent parameters +35.4 %" in _md()


def test_json_has_computed_and_printed():
    table = json.loads(render(published.sheet(published.read()), "json"))
    best = table["rows"][-1]
    assert best["delta_ll"] == pytest.approx(0.0239462, abs=1e-7)
    assert best["delta_ll_printed"] == pytest.approx(0.024)
    assert (best["delta_ll_agreement"], best["delta_ppx_agreement"]) == ("rounding", "match")
    assert best["delta_non_embedding_params"] == 18_432


@pytest.mark.parametrize("kind", FORMATS)
def test_every_format(kind):
    assert "2.8736" in render(published.sheet(published.read()), kind)
