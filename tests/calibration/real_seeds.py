"""Runs that were really trained (`seeds.yaml`): the baseline against itself, resampled into sweeps of five seeds.

`numbers.json` keeps their losses; `train` makes them again through `nlq sweep` and `nlq confirm`.
"""

import json
import re
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from figures import AT_MOST_5, COVERAGE, Figure, Measure, Sweep, better, covers, figure
from simulated_sweeps import RATE, Losses, Simulated

from nlq.core.errors import NlqError
from nlq.stats.evidence import gather
from nlq.stats.seeds import summarise
from nlq.store.reader import Reader

HERE = Path(__file__).parent
NUMBERS = HERE / "numbers.json"
SEEDS, DRAWN, SWEEPS = 48, 5, 1500
APART = 1000

Known = dict[str, dict[float, dict[int, Losses]]]
"""By arm, learning rate and seed."""


def train(db: Path) -> Known:
    """Train what the database lacks, tuning first, then fresh seeds of the chosen points; returns the losses."""
    for words in (["sweep", HERE / "seeds.yaml"], ["confirm", "--sweep", "seeds", "--seeds", SEEDS], ["work"]):
        command = [sys.executable, "-m", "nlq", *map(str, words), "--db", str(db)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise NlqError(f"{' '.join(command)} ended with {done.returncode}: {done.stderr[-500:]}")
    return losses_of(Reader(db))


def losses_of(reader: Reader) -> Known:
    """The last losses of every run of the sweep."""
    known: Known = {}
    members = reader.sweep("seeds").members
    rows = reader.evals(m.run.run_id for m in members)
    for member in members:
        last = {row.split: row.loss_nats for row in rows[member.run.run_id]}
        at = known.setdefault(member.arm, {}).setdefault(float(member.point[RATE]), {})
        at[member.run.seed] = Losses(last["select"], last["confirm"])
    return known


def kept() -> Known:
    """The losses that were found once, with their source beside them in the file."""
    arms: dict[str, Any] = json.loads(NUMBERS.read_text(encoding="utf-8"))["losses"]
    return {
        arm: {float(rate): {int(s): Losses(*pair) for s, pair in runs.items()} for rate, runs in rates.items()}
        for arm, rates in arms.items()
    }


def write(db: Path) -> None:
    """Keep the losses of a database in `numbers.json`, with the runs' keys and what they were made with."""
    reader = Reader(db)
    members, known = reader.sweep("seeds").members, losses_of(reader)
    made = next(m.run.provenance for m in members if m.run.provenance)
    first = {m.arm: m.run.spec_key for m in reversed(members) if m.run.seed > 0}
    mean, sigma = noise(known)
    content = {
        "spec": "seeds.yaml; nlq sweep, nlq confirm --seeds 48, nlq work",
        "spec_keys": first, "nlq_version": made.nlq_version, "commit": made.git_commit,
        "torch_version": made.torch_version, "device": made.device, "mean_nats": round(mean, 5),
        "sigma_nats": round(sigma, 5), "correlation": round(correlation(known), 3),
        "losses": {
            arm: {f"{rate:g}": {seed: [round(nats, 5) for nats in pair] for seed, pair in sorted(runs.items())}
                  for rate, runs in rates.items()}
            for arm, rates in known.items()
        },
    }  # fmt: skip
    text = json.dumps(content, indent=1)
    NUMBERS.write_text(re.sub(r"\[\s+([\d.]+),\s+([\d.]+)\s+\]", r"[\1, \2]", text) + "\n", encoding="utf-8")


def fresh(known: Known, arm: str) -> dict[int, Losses]:
    """The arm's confirming seeds: those of the point that has most."""
    runs = max(known[arm].values(), key=len)
    return {seed: losses for seed, losses in runs.items() if seed > 0}


def real_figures(known: Known | None = None, sweeps: int = SWEEPS) -> list[Figure]:
    """Of sweeps drawn from the real runs, those kept where none are given. Intervals are over draws, given the runs."""
    known = known or kept()
    designs = {"unpaired": False, "paired by nothing": True}
    found = []
    for name, alike in designs.items():
        drawn = [_against_itself(known, alike, np.random.default_rng(i)) for i in range(sweeps)]
        found += [
            figure(Measure(f'real seeds: false "better", baseline against itself, {name}', better, AT_MOST_5), drawn),
            figure(Measure("  coverage of 0", covers, COVERAGE), drawn),
        ]
    pairs = [_by_data_order(known, np.random.default_rng(i)) for i in range(sweeps)]
    return [*found, figure(Measure("real seeds: W_Q = I, paired by data order: coverage", covers, COVERAGE), pairs)]


def noise(known: Known, arm: str = "baseline") -> tuple[float, float]:
    """Mean and sd over fresh seeds on `confirm`, nats a token."""
    found = summarise(losses.confirm for losses in fresh(known, arm).values())
    assert found
    assert found.sd
    return found.mean, found.sd


def correlation(known: Known) -> float:
    """ρ̂ of the two arms over common seeds."""
    base, other = fresh(known, "baseline"), fresh(known, "identity")
    pairs = [(base[seed].confirm, other[seed].confirm) for seed in base.keys() & other.keys()]
    return float(np.corrcoef(np.array(pairs).T)[0, 1])


def _against_itself(known: Known, alike: bool, rng: np.random.Generator) -> Sweep:
    """Ten of the baseline's fresh runs, none twice, as five of each of two arms; the arms' seeds are `alike` or not."""
    runs = fresh(known, "baseline")
    picked = [runs[int(seed)] for seed in rng.permutation(list(runs))[: 2 * DRAWN]]
    source = Simulated()
    for place, name in enumerate(("baseline", "copy")):
        first = 1 if alike else 1 + APART * place
        _fill(source, known["baseline"], name, picked[place * DRAWN :][:DRAWN], range(first, first + DRAWN))
    return Sweep(gather(source), [0.0])


def _by_data_order(known: Known, rng: np.random.Generator) -> Sweep:
    """Five seeds of both arms drawn with replacement, so that the mean over all seeds is the truth."""
    base, other = fresh(known, "baseline"), fresh(known, "identity")
    common = sorted(base.keys() & other.keys())
    seeds = [int(seed) for seed in rng.choice(common, DRAWN)]
    source = Simulated()
    for name, runs in (("baseline", base), ("identity", other)):
        _fill(source, known[name], name, [runs[seed] for seed in seeds], range(1, 1 + DRAWN))
    return Sweep(gather(source), [float(np.mean([base[s].confirm - other[s].confirm for s in common]))])


def _fill(
    source: Simulated, rates: dict[float, dict[int, Losses]], name: str, picked: Sequence[Losses], seeds: Iterable[int]
) -> None:
    """The arm as it was tuned by seed 0, and the picked runs under new numbers at its chosen point."""
    for rate, runs in rates.items():
        source.add(name, rate, 0, runs[0])
    chosen = max(rates, key=lambda rate: len(rates[rate]))
    for seed, losses in zip(seeds, picked, strict=True):
        source.add(name, chosen, seed, losses)
