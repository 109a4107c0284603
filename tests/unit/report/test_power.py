"""`nlq power`: METHOD 4.3's table as it is printed, and the number of seeds for one gap."""

import json

from nlq.report import power
from nlq.report.render import FORMATS, render


def test_table_of_method():
    table = power.read(0.0018, None, 0.8, None, 1)
    assert [f"{row.smallest_gap_nats:.4f}" for row in table.rows] == ["0.0102", "0.0055", "0.0036", "0.0027", "0.0024"]
    assert [row.sign_flip_floor for row in table.rows] == [0.25, 0.125, 2**-5, 2**-8, 2**-10]


def test_one_gap_in_every_format():
    sheet = power.sheet(power.read(0.0018, 0.01, 0.8, None, 1))
    assert json.loads(render(sheet, "json"))["seeds_needed"] == 3
    assert all("3" in render(sheet, form) for form in FORMATS)
    assert "a verdict asks for 5" in render(sheet, "md")


def test_several_arms_need_more():
    assert power.read(0.0018, 0.003, 0.8, None, 4).seeds_needed > power.read(0.0018, 0.003, 0.8, None, 1).seeds_needed


def test_command(nlq):
    done = nlq("power", "--sigma", 0.0018, "--gap", 0.003, "--correlation", 0.5, "--json")
    assert (done.code, json.loads(done.out)["seeds_needed"]) == (0, 6)
    assert nlq("power", "--sigma", 0).code == 2
    missing = nlq("power")
    assert (missing.code, "no σ is kept there" in missing.err) == (2, True)
