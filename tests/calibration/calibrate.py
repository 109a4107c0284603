"""Whether nlq's statistics keep what they promise. `make calibration` prints one table; a missed target exits 1.

`python tests/calibration/calibrate.py` simulates sweeps and, with `--train`, trains the baseline against itself.
"""

import argparse
import math
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from itertools import chain
from pathlib import Path

import figures as f
from figures import AT_MOST_5, COVERAGE, Batch, Figure, Measure
from real_seeds import real_figures, train, write
from simulated_sweeps import LEVEL_NATS, RATES, SIGMA_NATS, Arm, World

from nlq.stats.effects import Interval
from nlq.stats.power import best_of, detected
from nlq.stats.verdict import SMALLEST_CLAIM

LOUD_NATS = 0.02
"""A σ beside which δ_min is small, so that nothing but the interval stands between noise and "better"."""
POINTS = 29
MARGIN_NATS = SMALLEST_CLAIM * LEVEL_NATS
SAME = World(off_centre=True)
LOUD = World(arms=(Arm(sigma_nats=LOUD_NATS),), sigma_nats=LOUD_NATS, curvature=1.0, diverging=0.0)
GAPS = ((0.0036, 5, None), (0.0024, 10, None), (0.0055, 3, 0.0), (0.0036, 5, 0.0), (0.0024, 5, 0.6))
"""Gap in nats, seeds per arm, correlation over seeds (None: unpaired)."""
REFUSED = Measure('  called "better"', f.better, Interval(0, 0))
MANY = tuple(10.0 ** (-4 + i / 20) for i in range(POINTS))
PLAIN = World(flat=True, diverging=0.0, rates=RATES[1:4])


def same_arms() -> Iterator[Batch]:
    """Arms that are the baseline: whatever is found is false."""
    asked = (
        Measure('false "better", one arm', f.better, AT_MOST_5),
        Measure("  its interval covers δ of the points chosen", f.covers, COVERAGE),
        Measure("  its interval covers 0, whatever points were chosen", f.covers_zero),
        Measure("  a diverging point is chosen", f.chose_diverging, Interval(0, 0)),
    )
    yield Batch(SAME, 3000, asked)
    yield Batch(LOUD, 2000, (Measure('false "better", one arm, σ = 0.02', f.better, AT_MOST_5),))
    yield from _chosen_by_noise()
    four = replace(LOUD, arms=LOUD.arms * 4)
    together = (
        Measure('any false "better" among four arms, σ = 0.02', f.better, AT_MOST_5),
        Measure("  four intervals cover together", f.covers_all, COVERAGE),
    )
    yield Batch(four, 800, together)
    bonferroni = (Measure("  the same without window losses (Bonferroni)", f.covers_all, Interval(0.93, 1)),)
    yield Batch(replace(four, documents_se_nats=None), 1000, bonferroni)


def _chosen_by_noise() -> Iterator[Batch]:
    """Neighbouring rates differ by no more than σ, so that arms get different points: a true difference, of tuning.

    The intervals are about the points chosen. With one tuning seed "better" is then false in more than 5 %; with five
    it is not. No figure of the first kind is a target, for nlq does not hold it: it stands here to be known.
    """
    between = World(arms=(Arm(sigma_nats=0.01),), sigma_nats=0.01, off_centre=True)
    for seeds, target in ((1, f.ANY), (5, AT_MOST_5)):
        noisy = (
            Measure(f'false "better", σ = 0.01 chooses the points, {seeds} tuning seed(s)', f.better, target),
            Measure("  covers δ of the points chosen", f.covers, COVERAGE),
            Measure("  covers 0", f.covers_zero),
        )
        yield Batch(replace(between, tuning=seeds), 2000, noisy)


def coverage() -> Iterator[Batch]:
    """The 95 % interval of δ, by how seeds and documents vary."""
    unequal = (Arm(sigma_nats=3 * SIGMA_NATS),)
    by_document = (Arm(documents_se_nats=0.001),)
    worlds = {
        "paired, ρ = 0": replace(PLAIN, correlation=0.0),
        "paired, ρ = 0.7": replace(PLAIN, correlation=0.7),
        "paired, three seeds": replace(PLAIN, fresh=3),
        "unpaired": replace(PLAIN, correlation=0.0, paired=False),
        "unpaired, σ of the arm × 3": replace(PLAIN, correlation=0.0, paired=False, arms=unequal),
        "paired, σ of the arm × 3": replace(PLAIN, arms=unequal),
        "runs differ mostly by document": replace(PLAIN, documents_se_nats=1.3 * SIGMA_NATS),
        "arms differ by document": replace(PLAIN, arms=by_document),
        "the same, 20 documents": replace(PLAIN, arms=by_document, documents=20),
    }
    for name, world in worlds.items():
        yield Batch(world, 2000, (Measure(f"coverage: {name}", f.covers, COVERAGE),))


def power() -> Iterator[Batch]:
    """How often a true gap is found, against what `nlq power` says."""
    for gap, seeds, rho in GAPS:
        design = "unpaired" if rho is None else f"--correlation {rho:g}"
        said = detected(gap, seeds, SIGMA_NATS, rho)
        world = replace(
            PLAIN, arms=(Arm(gap),), fresh=seeds, correlation=rho or 0.0, paired=rho is not None
        )  # fmt: skip
        name = f"power: {gap} nats, {seeds} seeds, {design}: nlq power says {said:.3f}"
        yield Batch(world, 1500, (Measure(name, f.above_zero, Interval(said - 0.05, said + 0.05)),))
    few = replace(PLAIN, arms=(Arm(0.0055),), fresh=3, correlation=0.0, paired=False)
    yield Batch(few, 1500, (Measure("  0.0055, 3 unpaired seeds (Welch), against nlq power's 0.796", f.above_zero),))
    paired = replace(PLAIN, arms=(Arm(0.0036),), correlation=0.0)
    yield Batch(paired, 1500, (Measure("  0.0036, 5 paired seeds, ρ = 0, against unpaired 0.791", f.above_zero),))
    coarse = replace(paired, arms=(Arm(0.0036, documents_se_nats=0.0007),))
    yield Batch(coarse, 1500, (Measure("  the same where arms differ by document, SE 0.0007", f.above_zero),))


def choosing() -> Iterator[Batch]:
    """The best of 29 equal points against one point: as it was chosen, less c_k σ, out of bag, and on fresh seeds."""
    naive = replace(PLAIN, rates=MANY, base_rates=MANY[:1], fresh=0, correlation=0.0)
    curse = best_of(POINTS)
    asked = (
        Measure(f"best of 29 as chosen: bias in σ (c_29 = {curse:.2f})", f.bias, _around(curse, 0.15)),
        Measure("  less c_k σ: bias in σ", f.bias_less_bound, _around(0.0, 0.15)),
        REFUSED,
    )
    yield Batch(replace(naive, documents_se_nats=None), 800, asked, SIGMA_NATS)
    alike = (Measure("  points share the order of the data, ρ = 0.3: less c_k σ, a bound", f.bias_less_bound),)
    yield Batch(replace(naive, correlation=0.3), 400, alike, SIGMA_NATS)
    five = (
        Measure("best of 29, five seeds that choose and show: coverage", f.covers),
        Measure("  bias in σ", f.bias),
        Measure("  out of bag: bias in σ", f.bias_out_of_bag, _around(0.0, 0.15)),
        REFUSED,
    )
    yield Batch(replace(naive, tuning=5), 300, five)
    confirmed = (
        Measure("best of 29, confirmed on fresh seeds: bias in σ", f.bias, _around(0.0, 0.15)),
        Measure("  coverage", f.covers, COVERAGE),
        Measure('  false "better"', f.better, AT_MOST_5),
    )
    yield Batch(replace(naive, base_rates=MANY, fresh=5), 1000, confirmed)


def margins() -> Iterator[Batch]:
    """Arms that differ by exactly δ_min may be called equivalent in 5 % at most."""
    tuned = replace(PLAIN, flat=False)  # equal points often lie at an edge, where every word is refused
    for gain, seeds in ((MARGIN_NATS, 5), (-MARGIN_NATS, 5), (MARGIN_NATS, 10)):
        name = f'false "equivalent" at δ = {gain:+.4f}, {seeds} seeds'
        yield Batch(replace(tuned, arms=(Arm(gain),), fresh=seeds), 2000, (Measure(name, f.equivalent, AT_MOST_5),))
    yield Batch(tuned, 1000, (Measure('"equivalent" where δ = 0, 5 seeds', f.equivalent),))


def _around(value: float, by: float) -> Interval:
    return Interval(value - by, value + by)


def batches(share: float = 1.0) -> list[Batch]:
    """All simulated batches, with a share of their sweeps."""
    found = chain(same_arms(), coverage(), power(), choosing(), margins())
    return [batch._replace(sweeps=max(20, round(share * batch.sweeps))) for batch in found]


def show(found: list[Figure]) -> None:
    """One line a figure."""
    row = "{:<78} {:>7} {:>17} {:>17} {:>6}  {}"
    print(row.format("figure", "found", "95 % interval", "target", "sweeps", "verdict"))
    for line in found:
        ends = _ends(line.interval), _ends(line.target)
        print(row.format(line.name, f"{line.found:.3f}", *ends, line.sweeps, line.word))


def _ends(ends: Interval) -> str:
    return "–" if math.isinf(ends.low) else f"[{ends.low:.3f}, {ends.high:.3f}]"


def main() -> int:
    """The long form: 0 where every target is met, else 1."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--share", type=float, default=0.6, help="of the usual number of simulated sweeps")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--train", action="store_true", help="train the baseline against itself (minutes)")
    parser.add_argument("--db", type=Path, help="keep what is trained here, or use what is there")
    parser.add_argument("--keep", action="store_true", help="write the losses of --db to numbers.json, and end")
    options = parser.parse_args()
    if options.keep:
        write(options.db)
        return 0
    with ProcessPoolExecutor(options.processes) as pool:
        found = list(chain.from_iterable(pool.map(f.run, batches(options.share))))
    if options.train:
        with tempfile.TemporaryDirectory(prefix="nlq-calibration-") as folder:
            found += real_figures(train(options.db or Path(folder) / "runs.db"))
    else:
        found += real_figures()
    show(found)
    missed = [line for line in found if line.misses]
    aimed = [line for line in found if line.target != f.ANY]
    print(f"{len(missed)} of {len(aimed)} targets are missed; {len(found) - len(aimed)} more figures have none,")
    print("some of them because nlq falls short there: docs/CALIBRATION.md")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
