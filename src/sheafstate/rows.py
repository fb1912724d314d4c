"""From masks and ids to compacted rows: unmasked positions first, every position in its document. Source: DESIGN §5."""

from dataclasses import dataclass

import torch

from sheafstate.errors import InputError
from sheafstate.nn.records import Rows, spread_index
from sheafstate.ops.banded import take_along
from sheafstate.shapes import Bool, Float, Int, Tensor
from sheafstate.state import RowState

__all__ = ["Arrangement", "arrange", "check_shape", "documents_between"]


@dataclass(frozen=True)
class Arrangement:
    """How a batch is laid out for the layers.

    Attributes:
        rows: what the layers know.
        order: column of every compacted position, or ``None`` where nothing is masked.
        state: where the rows stand after this call.
    """

    rows: Rows
    order: Int[Tensor, "B T"] | None
    state: RowState

    def compact(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        """Columns to compacted positions; zeros where there is none.

        Masks in the layers multiply, so that what stands under padding (NaN, say) must not get there.
        """
        if self.order is None:
            return x
        return take_along(x, self.order).masked_fill(~self.rows.valid[..., None], 0)

    def restore(self, x: Tensor) -> Tensor:
        """Compacted positions back to columns."""
        return x if self.order is None else torch.empty_like(x).scatter(1, spread_index(self.order, x), x)

    def all_begun(self) -> bool:
        """Whether every row is known to have had a position; a compiled graph may not look."""
        return self.order is None or (_may_look() and bool(self.state.begun().all()))

    def columns(self, row: Tensor, position: Tensor) -> Tensor:
        """Columns of single compacted positions."""
        return position if self.order is None else self.order[row, position]


def arrange(
    shape: tuple[int, int],
    device: torch.device,
    attention_mask: Tensor | None,
    document_ids: Tensor | None,
    position_ids: Tensor | None,
    state: RowState | None,
    past: int,
    begun: bool = False,
) -> Arrangement:
    """Compact rows and number their documents.

    Args:
        shape: (B, T) of the input.
        device: where the rows live.
        attention_mask: (B, T) or (B, past + T); nonzero where a position exists; the last T columns count.
        document_ids: (B, T); a run of equal ids is a document, one equal to the last call's last id continues it.
        position_ids: (B, T) or (1, T); without ``document_ids``, a document starts where they restart.
        state: where the rows stood, or ``None`` at the beginning.
        past: columns of earlier calls.
        begun: whether every row is known to have had a position.

    Raises:
        InputError: a mask or ids of another shape.
    """
    batch, length = shape
    mask = _mask(shape, device, attention_mask, past)
    if begun and state is not None and length == 1 and mask is None and document_ids is None and position_ids is None:
        return _next(state, past)
    order = None if mask is None else torch.argsort((~mask).to(torch.int8), dim=1, stable=True)
    count = torch.full((batch,), length, device=device) if mask is None else mask.sum(1)
    index = torch.arange(length, device=device)
    valid = index < count[:, None]
    before = RowState.initial(batch, device) if state is None else state
    columns = past + (index.expand(shape) if order is None else order)
    documents = _ids("document_ids", document_ids, shape, order)
    positions = _ids("position_ids", position_ids, shape, order) if documents is None else None
    start = _starts(shape, columns, documents, positions, before)
    start[:, 0] |= ~before.begun()
    start &= valid
    opened = torch.where(start, index, -1).cummax(1).values
    offset = torch.where(opened < 0, before.position[:, None] + index, index - opened)
    last = (count - 1).clamp(min=0)[:, None]
    some = count > 0

    def at_end(values: Tensor | None, otherwise: Tensor) -> Tensor:
        return otherwise if values is None else torch.where(some, values.gather(1, last)[:, 0], otherwise)

    known = before.last_id >= 0
    new = RowState(
        document=at_end(documents, before.document),
        position=at_end(offset + 1, before.position),
        seen=before.seen + count,
        last_id=at_end(positions, torch.where(known, before.last_id + count, -1)),
        last_column=at_end(columns, before.last_column),
    )
    settled = None
    if length == 1 and state is not None and order is None and _may_look() and not torch.is_grad_enabled():
        settled = None if bool(start.any()) else int(offset.min())
    whole = documents is None and positions is None
    return Arrangement(Rows(start.cumsum(1), start, offset, valid, count, settled, whole), order, new)


def _may_look() -> bool:
    """Whether a choice may hang on data; a compiled graph would break there."""
    return not torch.compiler.is_compiling()


def _next(state: RowState, past: int) -> Arrangement:
    """The next position of every row, where none is masked and nothing says that a document begins."""
    offset = state.position[:, None]
    zeros, ones = torch.zeros_like(offset), torch.ones_like(state.position)
    settled = None
    if not torch.is_grad_enabled():
        settled = int(offset.min()) if _may_look() else 0
    new = RowState(
        document=state.document,
        position=state.position + 1,
        seen=state.seen + 1,
        last_id=torch.where(state.last_id >= 0, state.last_id + 1, -1),
        last_column=torch.full_like(ones, past),
    )
    return Arrangement(Rows(zeros, zeros.bool(), offset, ~zeros.bool(), ones, settled), None, new)


def check_shape(name: str, given: Tensor, ends: tuple[int, ...]) -> None:
    """Refuse an input that is no (rows, positions, ...) or has none of either."""
    if given.dim() != 2 + len(ends) or given.shape[2:] != ends or not given.numel():
        wanted = ", ".join(["rows", "positions", *map(str, ends)])
        raise InputError(f"{name} must have shape ({wanted}) and at least one position, not {tuple(given.shape)}")


def documents_between(borders: Tensor, shape: tuple[int, int]) -> Int[Tensor, "one T"]:
    """Document ids of one row from the borders of its documents, as flattening collators give them: 0, ..., T.

    Raises:
        InputError: several rows, or borders that do not end with the row.
    """
    if shape[0] != 1 or borders.dim() != 1 or int(borders[-1]) != shape[1]:
        raise InputError(f"cu_seq_lens_q must end at the length of one row, {shape[1]}; the input has {shape[0]} rows")
    column = torch.arange(shape[1], device=borders.device)
    return torch.bucketize(column, borders[1:].contiguous(), right=True)[None]


def _starts(
    shape: tuple[int, int],
    columns: Int[Tensor, "B T"],
    documents: Int[Tensor, "B T"] | None,
    positions: Int[Tensor, "B T"] | None,
    before: RowState,
) -> Bool[Tensor, "B T"]:
    """Where a document starts, seen from the ids alone."""
    start = torch.zeros(shape, dtype=torch.bool, device=columns.device)
    if documents is not None:
        return documents != torch.cat([before.document[:, None], documents[:, :-1]], 1)
    if positions is None:
        return start
    # A position goes on where it is its predecessor's next, or as far from it as their columns are (a masked gap).
    step = positions - torch.cat([before.last_id[:, None], positions[:, :-1]], 1)
    gap = columns - torch.cat([before.last_column[:, None], columns[:, :-1]], 1)
    start = (step != 1) & (step != gap)
    # after calls without ids nothing is known but that 0 begins something
    start[:, 0] = torch.where(before.last_id >= 0, start[:, 0], positions[:, 0] == 0)
    return start


def _mask(shape: tuple[int, int], device: torch.device, mask: Tensor | None, past: int) -> Bool[Tensor, "B T"] | None:
    """The mask of this call's columns, ``None`` where all exist."""
    if mask is None:
        return None
    batch, length = shape
    if mask.dim() != 2 or mask.shape[0] != batch or mask.shape[1] not in (length, past + length):
        widths = f"{length}" if not past else f"{length} or {past + length}"
        raise InputError(f"attention_mask must have shape ({batch}, {widths}), not {tuple(mask.shape)}")
    mask = mask[:, mask.shape[1] - length :].to(device).bool()
    # one look at the data saves two permutations a call; a compiled graph may not look
    return None if _may_look() and bool(mask.all()) else mask


def _ids(name: str, ids: Tensor | None, shape: tuple[int, int], order: Tensor | None) -> Int[Tensor, "B T"] | None:
    if ids is None:
        return None
    if ids.dim() != 2 or ids.shape[0] not in (1, shape[0]) or ids.shape[1] != shape[1]:
        raise InputError(f"{name} must have shape {tuple(shape)}, not {tuple(ids.shape)}")
    ids = ids.expand(shape).long()
    return ids if order is None else ids.gather(1, order)
