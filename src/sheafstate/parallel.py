"""Reading one long text on several processes: each reads a part, and states go from rank to rank.

A layer's state after the first part is all that the second part needs of it, so a rank can read its part of a layer as
soon as the rank before has read its own. With L layers and R ranks the whole takes (R + L - 1) / L times as long as one
part, each rank holds the activations of its part alone, and what is sent is one state a layer, whatever the length.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial

import torch
import torch.distributed as dist

from sheafstate.errors import InputError
from sheafstate.modeling import SheafStateForCausalLM
from sheafstate.nn.block import Block, BlockState
from sheafstate.nn.records import Record, replace_tensors, tensors_of
from sheafstate.outputs import SheafStateCausalLMOutput
from sheafstate.rows import arrange
from sheafstate.shapes import Int, Tensor
from sheafstate.state import RowState, SheafStateCache, SheafStateCacheLayer

__all__ = ["read_in_parallel"]


@torch.no_grad()
def read_in_parallel(
    model: SheafStateForCausalLM,
    input_ids: Int[Tensor, "B T"],
    attention_mask: Int[Tensor, "B T"] | None = None,
    document_ids: Int[Tensor, "B T"] | None = None,
    group: dist.ProcessGroup | None = None,
    logits_to_keep: int = 0,
) -> SheafStateCausalLMOutput:
    """Read a text of which every rank of a process group holds one part, in the order of the ranks.

    Every rank must call it, with the same weights and as many rows. The result is that of reading the whole at once:
    each rank has the logits of its own part, and the cache of the last rank is the state after the whole text, with
    which that rank goes on to decode.

    Args:
        model: the model, in evaluation mode.
        input_ids: this rank's columns of the text; parts may be of unlike lengths.
        attention_mask, document_ids: of these columns, as in :meth:`SheafStateForCausalLM.forward`.
        group: the ranks; by default all processes.
        logits_to_keep: how many last columns get logits, 0 for all.

    Returns:
        the output for this rank's part; its ``cache`` is the state after it.

    Raises:
        InputError: there is no process group, or the site has no state of fixed size.
    """
    if not dist.is_initialized():
        raise InputError("reading in parallel needs a process group: start with torchrun and init_process_group")
    if model.config.site == "complete":
        raise InputError("the complete site keeps every position and cannot be read in parts by several processes")
    relay = _Relay(model, input_ids.shape[0], group)
    place = relay.receive_place()
    past = int(place.columns)
    shape = (input_ids.shape[0], input_ids.shape[1])
    begun = place.rows if past else None
    after = arrange(shape, input_ids.device, attention_mask, document_ids, None, begun, past).state
    relay.send_place(_Place(after, place.columns + shape[1]))
    with relay.sending_states():
        output = model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            document_ids=document_ids,
            cache=relay.cache(place),
            use_cache=True,
            logits_to_keep=logits_to_keep,
        )
    relay.wait()
    output.cache = output.cache.snapshot()
    return output


@dataclass(frozen=True)
class _Place:
    """Where the rows stand between two ranks."""

    rows: RowState
    columns: Int[Tensor, ""]

    @classmethod
    def initial(cls, batch: int, device: torch.device) -> "_Place":
        return cls(RowState.initial(batch, device), torch.zeros((), dtype=torch.long, device=device))


class _ArrivingLayer(SheafStateCacheLayer):
    """A layer's state that arrives when it is asked for."""

    _held: BlockState | None

    def __init__(self, receive: Callable[[], BlockState], columns: int) -> None:
        super().__init__()
        self._receive, self.length, self.is_initialized = receive, columns, True

    @property
    def state(self) -> BlockState | None:
        """The state, received once."""
        if self._held is None:
            self._held = self._receive()
        return self._held

    @state.setter
    def state(self, value: BlockState | None) -> None:
        self._held = value


class _Relay:
    """Receives the states of the rank before and sends those of this one to the rank behind, layer by layer."""

    def __init__(self, model: SheafStateForCausalLM, batch: int, group: dist.ProcessGroup | None) -> None:
        self.batch, self.group, self.signature = batch, group, model.config.state_signature
        self.blocks = [block for block in model.model.layers.children() if isinstance(block, Block)]
        self.like = model.model.get_input_embeddings().weight
        rank, last = dist.get_rank(group), dist.get_world_size(group) - 1
        self.before = None if rank == 0 else _global_rank(group, rank - 1)
        self.behind = None if rank == last else _global_rank(group, rank + 1)
        self.sent: list[tuple[dist.Work, Tensor]] = []

    def receive_place(self) -> _Place:
        """Where the rows stand before this rank's part."""
        place = _Place.initial(self.batch, self.like.device)
        return place if self.before is None else self._receive(place)

    def send_place(self, place: _Place) -> None:
        """Tell the rank behind where the rows stand, before any layer is read."""
        if self.behind is not None:
            self._send(place, place)

    def cache(self, place: _Place) -> SheafStateCache:
        """The state before this rank's part; that of a layer arrives when the layer asks for it."""
        cache = SheafStateCache(len(self.blocks))
        if self.before is not None:
            cache.rows, cache.signature = place.rows, self.signature
            cache.layers = [_ArrivingLayer(partial(self._receive_state, b), int(place.columns)) for b in self.blocks]
        return cache

    @contextmanager
    def sending_states(self) -> Iterator[None]:
        """While it lasts, every layer's state goes to the rank behind as soon as there is one."""
        with ExitStack() as stack:
            if self.behind is not None:
                for block in self.blocks:
                    stack.callback(block.register_forward_hook(self._send_state).remove)
            yield

    def wait(self) -> None:
        """Until all that was sent has left."""
        for work, _ in self.sent:
            work.wait()

    def _receive_state(self, block: Block) -> BlockState:
        return self._receive(block.initial_state(self.batch, self.like))

    def _send_state(self, block: Block, arguments: object, result: tuple) -> None:
        self._send(result[1], block.initial_state(self.batch, self.like))

    def _send(self, record: object, template: object) -> None:
        """Send a record in the dtypes of its template, as one run of bytes."""
        pairs = zip(tensors_of(record), tensors_of(template), strict=True)
        parts = [t.to(like.dtype).contiguous().flatten().view(torch.uint8) for t, like in pairs]
        data = torch.cat(parts)
        work = dist.isend(data, self.behind, self.group)
        if work is not None:
            self.sent.append((work, data))

    def _receive(self, template: Record) -> Record:
        tensors = tensors_of(template)
        sizes = [t.numel() * t.element_size() for t in tensors]
        data = torch.empty(sum(sizes), dtype=torch.uint8, device=self.like.device)
        dist.recv(data, self.before, self.group)
        parts = zip(data.split(sizes), tensors, strict=True)
        # views of another dtype must begin at a multiple of its size
        return replace_tensors(template, [p.clone().view(t.dtype).reshape(t.shape) for p, t in parts])


def _global_rank(group: dist.ProcessGroup | None, rank: int) -> int:
    return rank if group is None else dist.get_global_rank(group, rank)
