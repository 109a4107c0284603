"""One pre-norm block: x += Attention(Norm(x)); x += MLP(Norm(x))."""

from jaxtyping import Float
from torch import Tensor, nn

from nlq.models.layers import LayerNorm


class Attention(nn.Module):
    """Four projections around a mixer of tokens."""

    def __init__(self, projections: dict[str, nn.Module], mixer: nn.Module, heads: int, kv_heads: int) -> None:
        super().__init__()
        self.query = projections["query"]
        self.key = projections["key"]
        self.value = projections["value"]
        self.mixer = mixer
        self.output = projections["output"]
        self.heads = heads
        self.kv_heads = kv_heads

    def forward(self, x_BTD: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        """Project, split into heads, mix, merge, project."""
        q_BHTK = _split(self.query(x_BTD), self.heads)
        k_BGTK = _split(self.key(x_BTD), self.kv_heads)
        v_BGTK = _split(self.value(x_BTD), self.kv_heads)
        y_BHTK = self.mixer(q_BHTK, k_BGTK, v_BGTK)
        z_BTD: Tensor = self.output(y_BHTK.transpose(1, 2).flatten(2))
        return z_BTD


class Block(nn.Module):
    """Attention, then the feed-forward, each on the normalised stream and added to it."""

    def __init__(self, width: int, attention: nn.Module, mlp: nn.Module) -> None:
        super().__init__()
        self.norm_attention = LayerNorm(width)
        self.attention = attention
        self.norm_mlp = LayerNorm(width)
        self.mlp = mlp

    def forward(self, x_BTD: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        """One layer of the residual stream."""
        x_BTD = x_BTD + self.attention(self.norm_attention(x_BTD))
        x_BTD = x_BTD + self.mlp(self.norm_mlp(x_BTD))
        return x_BTD


def _split(x_BTE: Float[Tensor, "B T E"], heads: int) -> Float[Tensor, "B heads T K"]:
    return x_BTE.view(*x_BTE.shape[:2], heads, -1).transpose(1, 2)
