"""From a spec file to runs that can be queued: corpus, tokenizer and model put together."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nlq.commands._console import slots_text
from nlq.core import plugin
from nlq.core.document import Document, read
from nlq.core.errors import Mistake, NlqError, SpecError, nearest
from nlq.core.launch import Slot
from nlq.core.spec import DataSpec, RunSpec, defaults_resolved
from nlq.core.sweep import Sweep, expand
from nlq.data.plan import run_data
from nlq.data.prepare import corpus_bytes, find, prepare
from nlq.data.prepared import Prepared
from nlq.models.build import resolve as resolve_model
from nlq.models.cost import Cost, cost
from nlq.runners._gpus import gpu_of
from nlq.runners._slots import device_count
from nlq.training.pace import Paces
from nlq.training.precision import quicker_precision

VOCAB_MULTIPLE = 64
LOOK_AHEAD_BYTES = 256 << 20
"""A dry run prepares a corpus of up to this size, to show the keys that the runs will have."""


@dataclass
class Planned:
    """A sweep with the cost of each of its models, by spec key, and remarks about what is not settled yet."""

    sweep: Sweep
    costs: dict[str, Cost]
    remarks: list[str]


@dataclass
class _Planner:
    """Fills in what a spec file leaves open. Equal corpora and equal models are looked at once."""

    document: Document
    cache: Path
    preparing: Callable[[DataSpec], bool]
    missing_is_fine: bool
    paces: Paces | None = None
    announce: Callable[[str], None] = lambda _: None
    remarks: dict[str, None] = field(default_factory=dict)
    corpora: dict[str, Prepared | None] = field(default_factory=dict)
    models: dict[str, Any] = field(default_factory=dict)
    precision: str | None = None

    def resolve(self, spec: RunSpec) -> RunSpec:
        """Every default filled in. Raises SpecError."""
        spec = self._data(spec)
        prepared = self._prepared(spec.data)
        spec = self._precision(self._model(self._vocab(spec, prepared)))
        if prepared is None:
            return spec
        _check_digest(spec, prepared)
        with _as_mistake("data"):
            run_data(spec, prepared)
        return spec.resolved(data={"sha256": prepared.manifest.sha256})

    def _data(self, spec: RunSpec) -> RunSpec:
        """Settings with computed defaults, paths made absolute, names checked."""
        for name, kinds in (("corpus", "nlq.data.corpora"), ("tokenizer", "nlq.data.tokenizers")):
            found, known = getattr(spec.data, name), plugin.kinds(kinds)
            if found not in known:
                hint = f"data.{name}: {nearest(found, known)}"
                raise SpecError([Mistake(f"data.{name}", f'no {name} "{found}"', hint=hint)])
        paths = {n: self._absolute(getattr(spec.data, n)) for n in ("path", "tokenizer_path")}
        return defaults_resolved(spec).resolved(data=paths)

    def _absolute(self, path: str | None) -> str | None:
        if path is None:
            return None
        try:
            found = str((self.document.folder / Path(path).expanduser()).resolve())
            found.encode("utf-8")
        except (OSError, RuntimeError, ValueError) as error:
            raise SpecError([Mistake("data.path", f"no path that can be followed: {path!r} ({error})")]) from error
        return found

    def _prepared(self, data: DataSpec) -> Prepared | None:
        key = data.model_dump_json(exclude={"sha256", "plan"})
        if key not in self.corpora:
            self.corpora[key] = self._find_or_prepare(data)
        return self.corpora[key]

    def _find_or_prepare(self, data: DataSpec) -> Prepared | None:
        try:
            found = find(data, self.cache)
            if found is not None or not self.preparing(data):
                return found
            self.announce(f"preparing the corpus in {self.cache}")
            return prepare(data, self.cache)
        except NlqError as error:
            if not self.missing_is_fine:
                raise SpecError([Mistake(_data_setting(data), error.message, hint=error.hint)]) from error
            self.remarks[f"keys are provisional: {error.message}"] = None
            return None

    def _vocab(self, spec: RunSpec, prepared: Prepared | None) -> RunSpec:
        needed = prepared.manifest.vocab if prepared else _tokenizer_vocab(spec)
        vocab = spec.model.vocab or -(-needed // VOCAB_MULTIPLE) * VOCAB_MULTIPLE
        if vocab < needed:
            message = f"{vocab} rows are too few for the {needed} tokens of {spec.data.tokenizer}"
            raise SpecError([Mistake("model.vocab", message, hint=f"model.vocab: {needed} or more, or leave it out")])
        return spec.resolved(model={"vocab": vocab})

    def _precision(self, spec: RunSpec) -> RunSpec:
        """Where it is "auto": the quicker one for the first run, and the same for all others of the sweep."""
        if spec.train.precision != "auto" or self.paces is None:
            return spec
        self.precision = self.precision or quicker_precision(spec, self.cache, self.paces.slots, self.paces.announce)
        return spec.resolved(train={"precision": self.precision})

    def _model(self, spec: RunSpec) -> RunSpec:
        key = spec.model.model_dump_json()
        if key not in self.models:
            self.models[key] = resolve_model(spec).model
        return spec.model_copy(update={"model": self.models[key]})


def plan_to_run(path: Path, cache: Path, paces: Paces, announce: Callable[[str], None]) -> Planned:
    """The sweep of a spec file, its corpora prepared. Nothing is prepared before the whole file is found right.

    Raises NlqError, also where a run needs more devices than there are slots.
    """
    document = read(path)
    looked = expand(document, _Planner(document, cache, lambda _: False, missing_is_fine=False).resolve)
    if beyond := too_many_devices(looked, paces.slots):
        raise beyond
    return _planned(_Planner(document, cache, lambda _: True, False, paces, announce))


def too_many_devices(sweep: Sweep, slots: list[Slot]) -> NlqError | None:
    """What is wrong where a run needs more devices than there are."""
    needed, here = max((run.spec.train.devices for run in sweep.runs), default=1), device_count(slots)
    if needed <= here:
        return None
    more = f"--gpus with {needed} GPUs" if gpu_of(slots[0].name) else f"--slots {needed}"
    message = f"{sweep.source}: train.devices is {needed}, and only {here} can be had at once: {slots_text(slots)}"
    return NlqError(message, f"train.devices: {here}; or {more}")


def plan_to_look(path: Path, cache: Path, paces: Paces) -> Planned:
    """The sweep of a spec file for a dry run: a corpus that is not here leaves the spec keys provisional."""

    def small(data: DataSpec) -> bool:
        return corpus_bytes(data) <= LOOK_AHEAD_BYTES

    return _planned(_Planner(read(path), cache, small, missing_is_fine=True, paces=paces))


def _planned(planner: _Planner) -> Planned:
    sweep = expand(planner.document, planner.resolve)
    by_model: dict[str, Cost] = {}
    costs = {}
    for run in sweep.runs:
        shape = run.spec.model.model_dump_json()
        by_model[shape] = by_model.get(shape) or cost(run.spec.model)
        costs[run.key] = by_model[shape]
    return Planned(sweep, costs, list(planner.remarks))


class _as_mistake:  # noqa: N801 - reads as a statement
    """Turns an NlqError about a setting into a SpecError that knows the setting."""

    def __init__(self, setting: str) -> None:
        self.setting = setting

    def __enter__(self) -> None:
        return None

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, NlqError) and not isinstance(error, SpecError):
            raise SpecError([Mistake(self.setting, error.message, hint=error.hint)]) from error


def _tokenizer_vocab(spec: RunSpec) -> int:
    if spec.model.vocab:
        return 0
    with _as_mistake("data.tokenizer"):
        vocab: int = plugin.load("nlq.data.tokenizers", spec.data.tokenizer).load(spec.data).vocab
    return vocab


def _data_setting(data: DataSpec) -> str:
    return "data.corpus" if data.path is None else "data.path"


def _check_digest(spec: RunSpec, prepared: Prepared) -> None:
    if spec.data.sha256 not in (None, prepared.manifest.sha256):
        message = f"the corpus here has the digest {prepared.manifest.sha256}"
        raise SpecError([Mistake("data.sha256", message, hint="data.sha256: leave it out, or bring the corpus meant")])
