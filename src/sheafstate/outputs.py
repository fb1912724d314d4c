"""What the models return: states, logits, and the site that a layer used, in the columns of the input."""

from dataclasses import dataclass

import torch
from transformers.utils import ModelOutput

from sheafstate.config import SheafStateConfig
from sheafstate.edges import EdgeList
from sheafstate.nn.block import BlockReport
from sheafstate.nn.records import required
from sheafstate.patches import HEAD_TYPES
from sheafstate.rows import Arrangement
from sheafstate.shapes import Float, Int, Tensor
from sheafstate.state import SheafStateCache

__all__ = ["LayerSite", "SheafStateCausalLMOutput", "SheafStateModelOutput", "layer_site"]


@dataclass(frozen=True)
class LayerSite:
    """The site that one layer used, in the columns of the input.

    Attributes:
        edges: typed relations of every row, with head (numbered within its type) and weight.
        addresses: address of every position in every map, (B, M, T); -1 where masked. Empty where no type has any.
        boundaries: probability that a patch of each interval type in use starts here, (B, I, T).
        compatibility: c of every head, heads in the order of ``config.covers``, (B, H, T).
        shares: of every head, the length of what it adds to the residual stream, of all heads' lengths, (B, H, T);
            heads as above.
        residual: sum of c_h e_h, (B, T); ``None`` unless gluing is by sheaf.
        experts: chosen expert, (B, T), or ``None`` without experts.
    """

    edges: list[EdgeList]
    addresses: Int[Tensor, "B M T"]
    boundaries: Float[Tensor, "B I T"]
    compatibility: Float[Tensor, "B H T"]
    shares: Float[Tensor, "B H T"]
    residual: Float[Tensor, "B T"] | None
    experts: Int[Tensor, "B T"] | None


class _Output(ModelOutput):
    """A model output whose state also has the name it had before transformers 5.24, without a warning."""

    cache: SheafStateCache | None

    @property
    def past_key_values(self) -> SheafStateCache | None:
        """The same object as ``cache``."""
        return self.cache

    @property
    def attentions(self) -> None:
        """None: no layer has a map of attention; libraries look for one. What is read is in ``site``."""
        return None


@dataclass
class SheafStateModelOutput(_Output):
    """What :class:`SheafStateModel` returns.

    Attributes:
        last_hidden_state: (B, T, D).
        cache: the state after the last position, where it was asked for; ``past_key_values`` is the same object.
        hidden_states: the residual stream before every layer, and the normalised end.
        site: a :class:`LayerSite` for every layer, where it was asked for.
        aux_loss: mean over layers of the experts' balance loss (1 where the load is even), ``None`` without experts.
    """

    last_hidden_state: Tensor | None = None
    cache: SheafStateCache | None = None
    hidden_states: tuple[Tensor, ...] | None = None
    site: tuple[LayerSite, ...] | None = None
    aux_loss: Tensor | None = None


@dataclass
class SheafStateCausalLMOutput(_Output):
    """What :class:`SheafStateForCausalLM` returns.

    Attributes:
        loss: negative log-likelihood in nats, where labels were given. Its value holds nothing else; its gradient also
            balances the experts' load.
        logits: (B, T, V) or as many positions as ``logits_to_keep`` says, float32 or wider.
        cache, past_key_values, hidden_states, site, aux_loss: as in :class:`SheafStateModelOutput`.
    """

    loss: Tensor | None = None
    logits: Tensor | None = None
    cache: SheafStateCache | None = None
    hidden_states: tuple[Tensor, ...] | None = None
    site: tuple[LayerSite, ...] | None = None
    aux_loss: Tensor | None = None


def layer_site(config: SheafStateConfig, report: BlockReport, arrangement: Arrangement) -> LayerSite:
    """A block's report in the columns of the input."""
    site, rows = report.site, arrangement.rows
    batch, length = rows.valid.shape
    glued = report.glued
    wide = rows.offset.new_ones(batch, length, config.num_heads, dtype=torch.float32)
    if glued.compatibility is not None:
        wide = glued.compatibility

    def by_column(tensor: Tensor | None, none: Tensor) -> Tensor:
        return none if tensor is None else arrangement.restore(tensor).transpose(1, 2)

    addresses = None if site.address is None else site.address.transpose(1, 2).masked_fill(~rows.valid[..., None], -1)
    boundaries = None if site.log_carry is None else 1 - site.log_carry.exp()
    return LayerSite(
        edges=_edge_lists(report, arrangement),
        addresses=by_column(addresses, rows.segment.new_zeros(batch, 0, length)),
        boundaries=by_column(boundaries, wide.new_zeros(batch, 0, length)).detach(),
        compatibility=by_column(wide, wide).detach(),
        shares=by_column(glued.shares, wide),
        residual=None if glued.residual is None else arrangement.restore(glued.residual).detach(),
        experts=None if report.load is None else arrangement.restore(report.load.choice),
    )


def _edge_lists(report: BlockReport, arrangement: Arrangement) -> list[EdgeList]:
    batch, length = arrangement.rows.valid.shape
    parts = []
    for kind, section in report.sections.items():
        edges = required(section.edges)
        later, earlier = (arrangement.columns(edges.row, at) for at in (edges.later, edges.earlier))
        code = torch.full_like(later, HEAD_TYPES.index(kind))
        parts.append((edges.row, later, earlier, code, edges.head, edges.weight.float()))
    row, later, earlier, code, head, weight = (torch.cat(column).cpu() for column in zip(*parts, strict=True))
    names = tuple(kind.value for kind in HEAD_TYPES)
    lists = []
    for r in range(batch):
        mine = row == r
        pairs = later[mine].numpy(), earlier[mine].numpy()
        lists.append(EdgeList(*pairs, code[mine].numpy(), names, length, head[mine].numpy(), weight[mine].numpy()))
    return lists
