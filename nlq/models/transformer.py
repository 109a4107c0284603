"""The decoder-only transformer: embed, blocks, norm, head."""

from collections.abc import Sequence

from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from nlq.models.layers import Embedding, LayerNorm, Linear


class Transformer(nn.Module):
    """GPT-2's shape with open slots. The head shares the embedding's weights where `tied`."""

    def __init__(self, vocab: int, width: int, positions: nn.Module, blocks: Sequence[nn.Module], tied: bool) -> None:
        super().__init__()
        self.embedding = Embedding(vocab, width)
        self.positions = positions
        self.blocks = nn.ModuleList(blocks)
        self.norm = LayerNorm(width)
        self.head = None if tied else Linear(width, vocab)

    @property
    def head_weight(self) -> Tensor:
        """The matrix that makes logits, V × D."""
        return self.embedding.weight if self.head is None else self.head.weight

    def hidden(self, x_BTD: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        """From embedded tokens to the normalised states that the head reads."""
        x_BTD = self.positions(x_BTD)
        for block in self.blocks:
            x_BTD = block(x_BTD)
        y_BTD: Tensor = self.norm(x_BTD)
        return y_BTD

    def forward(self, tokens_BT: Int[Tensor, "B T"]) -> Float[Tensor, "B T V"]:
        """Logits of the next token at every position."""
        h_BTD = self.hidden(self.embedding(tokens_BT))
        return functional.linear(h_BTD, self.head_weight)


def token_losses(model: nn.Module, x_BT: Int[Tensor, "B T"], y_BT: Int[Tensor, "B T"]) -> Float[Tensor, "B T"]:
    """Cross-entropy of every next token in nats, in at least float32; the logits are whole in memory."""
    logits_BTV = model(x_BT)
    wide = logits_BTV.double() if logits_BTV.dtype.itemsize == 8 else logits_BTV.float()
    return functional.cross_entropy(wide.flatten(0, 1), y_BT.flatten(), reduction="none").view(y_BT.shape)
