"""What one run is: its data, model, optimiser and training settings, and the key that identifies it."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, ValidationError

from nlq.core.errors import Mistake, nearest
from nlq.core.optim import OptimSpec, optim_defaults, optim_mistakes
from nlq.core.settings import Real, Settings, Whole

SLOTS = ("query", "key", "value", "output", "attention", "mlp", "positions")

EXECUTION = frozenset(
    {
        "data.path",
        "data.tokenizer_path",
        "model.variant",
        "optim.lr_min_ratio",
        "train.checkpoint_minutes",
        "train.checkpoint_steps",
        "train.compile",
        "train.devices",
        "train.keep_steps",
        "train.micro_batch",
        "train.sharded",
    }
)
"""Settings that are recorded but not hashed: they say how or where, and change a number by rounding at most."""

ADDED_LATER: Mapping[str, Any] = {
    "optim.kind": "adamw",
    "optim.momentum": None,
    "optim.nesterov": None,
    "optim.muon_scale": None,
    "optim.adamw_lr_ratio": None,
    "optim.decay_share": None,
}
"""Settings that came after the first release, with the value that reproduces the older behaviour. While a
setting has that value it is left out of the key, so that runs trained before it existed keep theirs."""


def _a_component(value: Any) -> Any:
    if not isinstance(value, str | dict) or not isinstance(
        value if isinstance(value, str) else value.get("kind", ""), str
    ):
        raise ValueError(f"must be the name of a component or its settings, found {value!r}")
    return {"kind": value} if isinstance(value, str) else value


Slot = Annotated[dict[str, Any], BeforeValidator(_a_component)]
"""A component of the model: its kind and its options; a bare name is the kind alone."""


class DataSpec(Settings):
    """Which text, how it becomes tokens, and in which order they are read."""

    corpus: str = Field("stdlib", description="where the text comes from: stdlib, text")
    path: str | None = Field(None, description="file, folder or glob of corpus text, relative to the spec file")
    tokenizer: str = Field("bytes", description="bytes or gpt2")
    tokenizer_path: str | None = Field(None, description="folder that holds the tokenizer's vocabulary files")
    plan: Literal["windows", "paper"] = Field(
        "windows",
        description="order of the training windows: disjoint and shuffled, or drawn as the paper's code does",
    )
    val_fraction: Real = Field(0.05, gt=0, lt=0.5, description="share of the documents held out, by document hash")
    sha256: str | None = Field(None, description="digest of the prepared tokens; filled in when they are prepared")


class ModelSpec(Settings):
    """The shape of the transformer and what stands in each of its slots."""

    variant: str = Field("baseline", description="named system of variants.yaml that fills the slots")
    layers: Whole = Field(4, ge=1, le=1000, description="number of blocks")
    heads: Whole = Field(4, ge=1, le=10**6, description="query heads")
    kv_heads: Whole | None = Field(None, ge=1, description="key and value heads; as many as heads unless given")
    width: Whole = Field(128, ge=1, le=10**6, description="width of the residual stream")
    context: Whole = Field(128, ge=1, le=10**7, description="tokens a sequence")
    vocab: Whole | None = Field(
        None, ge=2, le=10**8, description="rows of the embedding; the tokenizer's, rounded up to 64"
    )
    tied: bool = Field(True, description="the head shares the embedding's weights")
    query: Slot = Field({}, description="component of the query map: kind and its options")
    key: Slot = Field({}, description="component of the key map")
    value: Slot = Field({}, description="component of the value map")
    output: Slot = Field({}, description="component of the output map")
    attention: Slot = Field({}, description="component that mixes tokens")
    mlp: Slot = Field({}, description="feed-forward component")
    positions: Slot = Field({}, description="position component")


class TrainSpec(Settings):
    """How long a run trains, how it is evaluated, and in which precision."""

    steps: Whole = Field(300, ge=1, le=10**9, description="updates")
    batch_tokens: Whole = Field(2048, ge=1, le=10**10, description="tokens a step, a multiple of model.context")
    devices: Whole = Field(1, ge=1, le=64, description="devices that share the sequences of each batch of one run")
    sharded: bool = Field(
        False,
        description="spread weights, gradients and optimiser state over the devices: for models too large for one",
    )
    micro_batch: Whole | None = Field(
        None, ge=1, description="sequences a forward pass of a device; all that it has of a batch unless given"
    )
    eval_every: Whole = Field(50, ge=1, description="steps between evaluations")
    eval_windows: Whole = Field(128, ge=1, le=10**8, description="validation windows an evaluation")
    report_step: Whole | None = Field(
        None, ge=0, description="step whose evaluation the tables show; the last unless given"
    )
    precision: Literal["auto", "float32", "bf16", "float64"] = Field(
        "float32",
        description="type of matrix products; auto: the quicker of float32 and bf16 on this machine, recorded",
    )
    compile: Literal["auto", "always", "never"] = Field(
        "auto", description="compile the model's code: auto does so where the run is long enough to gain by it"
    )
    guard_rise_nats: Real = Field(
        1.0, gt=0, description="diverged when the smoothed loss stays this far above its best"
    )
    guard_guessing: bool = Field(True, description="diverged when it stays above ln(vocab), the loss of guessing")
    guard_steps: Whole = Field(200, ge=1, description="steps that it must stay there")
    checkpoint_steps: Whole | None = Field(
        None, ge=1, description="steps between checkpoints, beside checkpoint_minutes"
    )
    checkpoint_minutes: Real = Field(10.0, ge=0, description="minutes between checkpoints")
    keep_steps: tuple[Whole, ...] = Field((), description="steps whose checkpoint is kept for good")


class RunSpec(Settings):
    """Everything that can change a number of one run."""

    data: DataSpec = DataSpec()
    model: ModelSpec = ModelSpec()
    optim: OptimSpec = OptimSpec()
    train: TrainSpec = TrainSpec()
    seed: Whole = Field(0, ge=0, lt=2**32, description="seed of the initial weights and of the data order")

    def resolved(self, **changes: Mapping[str, Any]) -> Self:
        """A copy in which settings of the groups named in `changes` are replaced."""
        groups = {name: getattr(self, name).model_copy(update=dict(new)) for name, new in changes.items()}
        return self.model_copy(update=groups)

    @property
    def sequences_per_step(self) -> int:
        """Sequences in one batch."""
        return self.train.batch_tokens // self.model.context

    @property
    def sequences_per_device(self) -> int:
        """Sequences of one batch that each device of a run reads."""
        return self.sequences_per_step // self.train.devices

    @property
    def report_step(self) -> int:
        """The step whose evaluation stands in the tables."""
        return self.train.steps if self.train.report_step is None else self.train.report_step

    def eval_steps(self) -> list[int]:
        """Steps at which the model is evaluated, each before the update of that number; the last comes after all."""
        every = range(0, self.train.steps + 1, self.train.eval_every)
        return sorted({*every, self.train.steps, self.report_step})


def defaults_resolved(spec: RunSpec) -> RunSpec:
    """Fill the settings whose default is computed from others (the model's slots are `models.build.resolve`'s)."""
    return spec.resolved(
        model={"kv_heads": spec.model.kv_heads or spec.model.heads},
        optim=optim_defaults(spec.optim, spec.train.steps),
        train={"report_step": spec.report_step},
    )


def mistakes_between(spec: RunSpec) -> Iterator[Mistake]:
    """Settings that are each valid but do not fit together."""
    model, train, data = spec.model, spec.train, spec.data
    if data.path is not None and data.corpus == "stdlib":
        yield Mistake("data.path", "corpus stdlib reads no path", hint="data.corpus: text")
    if data.path == "":
        yield Mistake("data.path", "is empty", hint="data.path: my_text.txt")
    if data.tokenizer_path is not None and data.tokenizer == "bytes":
        yield Mistake("data.tokenizer_path", "tokenizer bytes reads no files", hint="data.tokenizer: gpt2")
    if model.width % model.heads:
        yield Mistake("model.heads", f"{model.heads} heads do not divide width {model.width}", hint=_heads(model))
    if model.kv_heads and model.heads % model.kv_heads:
        yield Mistake("model.kv_heads", f"{model.kv_heads} key/value heads do not divide {model.heads} heads")
    if train.batch_tokens % model.context:
        whole = max(1, round(train.batch_tokens / model.context)) * model.context
        yield Mistake(
            "train.batch_tokens",
            f"{train.batch_tokens} is no multiple of context {model.context}",
            hint=f"nearest: {whole}",
        )
    elif spec.sequences_per_step % train.devices:
        yield Mistake(
            "train.devices",
            f"{train.devices} devices do not divide the {spec.sequences_per_step} sequences of a batch",
            hint="devices that divide them: " + _divisors(spec.sequences_per_step),
        )
    elif train.micro_batch and spec.sequences_per_device % train.micro_batch:
        of = "a batch" if train.devices == 1 else "a batch that each device has"
        have = f"{spec.sequences_per_device} sequences of {of}"
        yield Mistake("train.micro_batch", f"{train.micro_batch} does not divide the {have}")
    yield from _sharding_mistakes(spec)
    yield from optim_mistakes(spec.optim, train.steps)
    if spec.data.plan == "windows" and train.eval_windows < 2:
        yield Mistake(
            "train.eval_windows", "select and confirm need a window each", hint="train.eval_windows: 2 or more"
        )
    if train.report_step is not None and train.report_step > train.steps:
        yield Mistake("train.report_step", f"{train.report_step} is after the last step {train.steps}")


def _sharding_mistakes(spec: RunSpec) -> Iterator[Mistake]:
    if not spec.train.sharded:
        return
    if spec.train.devices == 1:
        yield Mistake("train.sharded", "one device has nobody to share with", hint="train.devices: 2 or more")
    if spec.optim.kind == "muon":
        hint = "optim.kind: adamw or sgd; or train.sharded: false"
        yield Mistake("train.sharded", "muon needs whole matrices, of which each device would have a part", hint=hint)
    if spec.train.compile == "always":
        yield Mistake("train.compile", "always does not go with train.sharded", hint="train.compile: never")


def _heads(model: ModelSpec) -> str:
    return "heads that divide the width: " + _divisors(model.width)


def _divisors(number: int) -> str:
    """The first of them, for a hint."""
    fitting = [d for d in range(1, min(number, 10**6) + 1) if number % d == 0]
    return ", ".join(map(str, fitting[:12]))


def setting_names() -> dict[str, str]:
    """Every dotted name a spec may set, with its description; a slot's own options are not listed."""
    groups: dict[str, type[Settings]] = {"data": DataSpec, "model": ModelSpec, "optim": OptimSpec, "train": TrainSpec}
    return {f"{g}.{n}": f.description or "" for g, group in groups.items() for n, f in group.model_fields.items()}


def unknown_setting(name: str) -> Mistake | None:
    """The mistake of a dotted name that no setting has, or None."""
    known = setting_names()
    head = ".".join(name.split(".")[:2])
    in_slot = head in {f"model.{slot}" for slot in SLOTS}
    if head in known and (in_slot or name == head):
        return None
    return Mistake(name, "unknown setting", hint=f"{name}: {nearest(head, known)}")


def parse_run(settings: Mapping[str, Any], seed: Any) -> tuple[RunSpec | None, list[Mistake]]:
    """A run from dotted settings. Returns None and the mistakes, with dotted paths, when a value does not fit."""
    try:
        return RunSpec.model_validate({**nested(settings), "seed": seed}), []
    except ValidationError as error:
        return None, [_mistake(dict(e)) for e in error.errors()]


def _mistake(error: dict[str, Any]) -> Mistake:
    return Mistake(".".join(str(part) for part in error["loc"]), field_message(error))


def field_message(error: Mapping[str, Any]) -> str:
    """One of pydantic's errors in words, with what was found."""
    message = error["msg"].removeprefix("Value error, ")
    message = message[0].lower() + message[1:]
    return message if "found" in message else f"{message}, found {error['input']!r}"


def nested(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted names as nested dicts: {"a.b": 1} becomes {"a": {"b": 1}}."""
    out: dict[str, Any] = {}
    for name, value in settings.items():
        *parents, last = name.split(".")
        node = out
        for parent in parents:
            below = node.get(parent, {})
            node[parent] = below if isinstance(below, dict) else {"kind": below}
            node = node[parent]
        if isinstance(node.get(last), dict) and isinstance(value, str):
            node[last]["kind"] = value
        else:
            node[last] = value
    return out


def dotted(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested dicts as dotted names; the inverse of `nested`. An empty dict sets nothing."""
    out: dict[str, Any] = {}
    for name, value in tree.items():
        out.update(dotted(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {f"{prefix}{name}": value})
    return out


def hashed_settings(spec: RunSpec) -> dict[str, Any]:
    """The resolved settings that the spec key covers, by dotted name."""
    settings = dotted(spec.model_dump())
    return {
        name: value
        for name, value in sorted(settings.items())
        if name not in EXECUTION and not (name in ADDED_LATER and ADDED_LATER[name] == value)
    }


def spec_key(spec: RunSpec) -> str:
    """SHA-256, in hex, of the canonical JSON of a resolved spec."""
    text = json.dumps(hashed_settings(spec), sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()
