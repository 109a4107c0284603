"""A Python file of settings is read as syntax: numbers and arithmetic are understood, nothing else is, nothing runs."""

from pathlib import Path

import pytest

from nlq.core.errors import NlqError
from nlq.importing.python_config import settings_of

NANOGPT = '''
"""GPT-2 (124M)"""
import time
wandb_log = True
wandb_run_name = "gpt2-" + str(time.time())
batch_size: int = 12
block_size = 1024
gradient_accumulation_steps = 5 * 8
max_iters = 60_000 + 2
lr_decay_iters = max_iters
learning_rate = 6e-4
min_lr = learning_rate / 10
weight_decay = 10 ** -1
if wandb_log:
    out_dir = "out"
'''


def settings(tmp_path: Path, text: str) -> dict[str, float]:
    path = tmp_path / "config.py"
    path.write_text(text, encoding="utf-8")
    return settings_of(path)


def test_settings_of_nanogpts_kind(tmp_path: Path) -> None:
    assert settings(tmp_path, NANOGPT) == {
        "model.context": 1024,
        "optim.lr_max": 6e-4,
        "optim.lr_min": 6e-4 / 10,
        "optim.weight_decay": 0.1,
        "optim.decay_steps": 60_002,
        "train.steps": 60_002,
        "train.batch_tokens": 491_520,
    }


@pytest.mark.parametrize(
    "text",
    [
        "learning_rate = __import__('os').system('touch owned')",
        "learning_rate = open('owned', 'w').write('1')",
        "learning_rate = [6e-4][0]",
        "learning_rate = 6e-4 if True else 1",
        "learning_rate = True",
        "learning_rate = rate",
        "learning_rate = 9 ** 9 ** 9",
        "learning_rate = 1e300 * 1e300",
        "learning_rate = (-8) ** 0.5",
        "learning_rate = 1 / 0",
        "learning_rate = " + "1 + " * 20_000 + "1",
        "learning_rate = " + "(" * 500 + "1" + ")" * 500,
        "learning_rate = 1\nif learning_rate:\n    learning_rate = 2",
        "learning_rate = 1\nlearning_rate += 1",
        "learning_rate, min_lr = 1, 2",
        "for learning_rate in [1]: pass",
        "not python",
        "wandb_log = True",
    ],
    ids=lambda text: text[:40],
)
def test_what_is_more_than_arithmetic_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(NlqError):
        settings(tmp_path, text)
    assert not (tmp_path / "owned").exists()
