"""The cache: the layers' states as one object that transformers' generation can carry, reorder and copy.

Its size does not depend on the length of the context (but for the complete site). Source: DESIGN §5.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import cast

import torch
from transformers.cache_utils import Cache, CacheLayerMixin

from sheafstate.errors import InputError
from sheafstate.nn.block import BlockState
from sheafstate.nn.records import map_tensors, tensors_of
from sheafstate.shapes import Bool, Int, Tensor

__all__ = ["RowState", "SheafStateCache", "SheafStateCacheLayer"]


@dataclass(frozen=True)
class RowState:
    """Where every row stands.

    Attributes:
        document: the id of the document that the last unmasked position belonged to; 0 where none was given.
        position: unmasked positions of that document so far.
        seen: unmasked positions of the row so far.
        last_id: the ``position_ids`` entry of the last unmasked position, -1 where none was ever given.
        last_column: the column of the last unmasked position, counted over all calls.
    """

    document: Int[Tensor, " B"]
    position: Int[Tensor, " B"]
    seen: Int[Tensor, " B"]
    last_id: Int[Tensor, " B"]
    last_column: Int[Tensor, " B"]

    @classmethod
    def initial(cls, batch: int, device: torch.device) -> "RowState":
        """Before the first token."""
        zeros = torch.zeros(batch, dtype=torch.long, device=device)
        return cls(zeros, zeros, zeros, zeros - 1, zeros)

    def begun(self) -> Bool[Tensor, " B"]:
        """Rows that have had an unmasked position."""
        return self.seen > 0


class SheafStateCacheLayer(CacheLayerMixin):
    """The state of one layer."""

    is_compileable = False
    is_croppable = False
    supports_early_init = False
    is_sliding = False

    def __init__(self) -> None:
        super().__init__()
        self.state: BlockState | None = None
        self.length = 0

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """A state is made by its layer; there is nothing to prepare."""

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: object, **kwargs: object
    ) -> tuple[Tensor, Tensor]:
        """A Sheaf-State layer replaces its whole state instead of adding keys and values to it."""
        raise NotImplementedError("a Sheaf-State layer replaces its state; it has no keys and values to update")

    def replace(self, state: BlockState, columns: int) -> None:
        """Take the state that the layer returned for ``columns`` more columns of input."""
        self.state, self.is_initialized = state, True
        self.length += columns

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Length and offset of the mask a layer needs: all columns so far, from the first."""
        return self.length + query_length, 0

    def get_seq_length(self) -> int:
        """Columns of input seen so far, masked ones included."""
        return self.length

    def get_max_length(self) -> int:
        """No limit."""
        return -1

    def reset(self) -> None:
        """Forget everything."""
        self.state, self.length, self.is_initialized = None, 0, False

    def crop(self, tokens_to_remove: int) -> None:
        """Refused: a state cannot be cut back."""
        raise ValueError(
            "a Sheaf-State cache cannot be cropped; take a snapshot() before the tokens you may want to undo"
        )

    def map(self, function: Callable[[Tensor], Tensor]) -> None:
        """Apply a function to every tensor of the state."""
        self.state = map_tensors(function, self.state)

    def offload(self) -> None:
        """States are small and stay where they are."""

    def prefetch(self) -> None:
        """States are small and stay where they are."""

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Rows in another order."""
        self.map(lambda tensor: tensor.index_select(0, beam_idx.to(tensor.device)))

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Every row ``repeats`` times."""
        self.map(lambda tensor: tensor.repeat_interleave(repeats, 0))

    def batch_select_indices(self, indices: Tensor) -> None:
        """The rows named."""
        self.map(lambda tensor: tensor[indices.to(tensor.device)])


class SheafStateCache(Cache):
    """States of all layers and of the rows.

    Args:
        num_layers: layers of the model.
    """

    def __init__(self, num_layers: int) -> None:
        super().__init__(layers=[SheafStateCacheLayer() for _ in range(num_layers)])
        self.rows: RowState | None = None
        self.signature: tuple = ()
        self.begun = False
        self._owned: bool | str | None = None
        self._torn = False

    def commit(
        self, states: list[BlockState], rows: RowState, columns: int, signature: tuple, begun: bool = False
    ) -> None:
        """Take the states of all layers at once, so that a call that fails half-way leaves the cache as it was.

        Args:
            states: of the layers.
            rows: where the rows stand.
            columns: of the call's input.
            signature: see :meth:`check`.
            begun: whether every row is known to have had a position.
        """
        for layer, state in zip(self.states, states, strict=True):
            layer.replace(state, columns)
        if not self._torn:  # the states are those that the layers returned, and not written in place
            self._owned = None
        self.rows, self.signature, self.begun, self._torn = rows, signature, self.begun or begun, False

    def begin_step(self) -> None:
        """Make the states the cache's own before they are written in place; until :meth:`commit` they are torn."""
        # a compiled graph cannot ask for the mode of inference; it may write what was made in none
        compiled = torch.compiler.is_compiling()
        mode = "compiled" if compiled else torch.is_inference_mode_enabled()
        if self._owned != mode and not (compiled and self._owned is False):
            for layer in self.states:
                layer.map(torch.clone)
            self._owned = mode
        self._torn = True

    def check(self, signature: tuple, batch: int) -> None:
        """Refuse a state that another model or another batch has left here.

        Args:
            signature: what the model's configuration says of its states; see ``SheafStateConfig.state_signature``.
            batch: rows of the input.

        Raises:
            InputError: the configuration or the rows differ, or a step of decoding failed half-way.
        """
        if self._torn:
            raise InputError("cache was left half-way through a step that failed: start again, or from a snapshot()")
        if self.rows is not None and self.signature != signature:
            raise InputError("cache was filled by a model of another configuration")
        if self.rows is not None and self.batch_size != batch:
            raise InputError(f"cache holds {self.batch_size} rows, the input has {batch}")

    def check_columns(self, columns: int) -> None:
        """Refuse a text that ends before this state does: generation would cut it in the wrong place.

        Args:
            columns: of the whole text, as its mask has them.

        Raises:
            InputError: nothing of the text is new.
        """
        read = self.get_seq_length()
        if 0 < read >= columns:
            raise InputError(
                f"the cache has read {read} columns, the attention_mask has {columns}: give generate() the whole text, "
                f"or its new tokens with a mask of the whole"
            )

    @property
    def states(self) -> list[SheafStateCacheLayer]:
        """The layers' states; ``layers``, which transformers reads, may hold layers of any kind."""
        return cast(list[SheafStateCacheLayer], self.layers)

    def tensors(self) -> Iterator[Tensor]:
        """Every tensor held."""
        yield from tensors_of([*(layer.state for layer in self.states), self.rows])

    def num_bytes(self) -> int:
        """Bytes of all tensors held."""
        return sum(tensor.numel() * tensor.element_size() for tensor in self.tensors())

    def snapshot(self) -> "SheafStateCache":
        """A copy that shares nothing with this cache."""
        return self._copy(torch.clone)

    def detach(self) -> "SheafStateCache":
        """A copy through which no gradient flows: truncated back-propagation through time."""
        self._owned = None  # what two caches share, neither may write into
        return self._copy(torch.detach)

    def __deepcopy__(self, memo: dict[int, object]) -> "SheafStateCache":
        """A snapshot: torch's own deep copy refuses tensors that carry gradients."""
        memo[id(self)] = copied = self.snapshot()
        return copied

    def _copy(self, function: Callable[[Tensor], Tensor]) -> "SheafStateCache":
        copy = SheafStateCache(len(self.layers))
        for mine, theirs in zip(self.states, copy.states, strict=True):
            theirs.state, theirs.length = map_tensors(function, mine.state), mine.length
            theirs.is_initialized = mine.is_initialized
        copy.signature, copy.begun, copy._torn = self.signature, self.begun, self._torn
        copy.rows = map_tensors(function, self.rows)
        return copy

    def _map_rows(self, function: Callable[[Tensor], Tensor]) -> None:
        if self.rows is not None:
            self.rows = map_tensors(function, self.rows)

    def reset(self) -> None:
        """Forget everything."""
        super().reset()
        self.rows, self.begun, self._owned, self._torn = None, False, None, False

    def reorder_cache(self, beam_idx: torch.LongTensor) -> None:
        """Rows in another order, for beam search."""
        super().reorder_cache(beam_idx)
        self._map_rows(lambda tensor: tensor.index_select(0, beam_idx.to(tensor.device)))

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Every row ``repeats`` times."""
        super().batch_repeat_interleave(repeats)
        self._map_rows(lambda tensor: tensor.repeat_interleave(repeats, 0))

    def batch_select_indices(self, indices: Tensor) -> None:
        """The rows named."""
        super().batch_select_indices(indices)
        self._map_rows(lambda tensor: tensor[indices.to(tensor.device)])

    @property
    def batch_size(self) -> int:
        """Rows held, -1 before the first call."""
        return -1 if self.rows is None else self.rows.seen.shape[0]
