"""The Hugging Face model: embed, blocks, readout. The mathematics is in ``nn``."""

import inspect
from typing import Any, NoReturn, Self

import torch
from torch import nn
from transformers import GenerationConfig, GenerationMixin, PreTrainedModel, initialization

from sheafstate.config import SheafStateConfig
from sheafstate.errors import InputError
from sheafstate.low_bit import pack_model
from sheafstate.nn.block import Block, BlockReport, BlockState
from sheafstate.nn.norm import RMSNorm
from sheafstate.nn.readout import Readout, next_token_loss
from sheafstate.nn.records import Initialized, Rows, replace_tensors, tensors_of
from sheafstate.outputs import SheafStateCausalLMOutput, SheafStateModelOutput, layer_site
from sheafstate.rows import Arrangement, arrange, check_shape, documents_between
from sheafstate.shapes import Tensor
from sheafstate.state import SheafStateCache

__all__ = ["SheafStateForCausalLM", "SheafStateModel"]

ALIGNMENT = 64
"""Bytes at whose multiples PyTorch's CPU allocator begins a tensor."""

# Arguments that libraries pass to every causal model and that mean nothing here.
IGNORED_ARGUMENTS = frozenset(
    [
        "output_attentions",
        "cache_position",
        "token_type_ids",
        "cu_seq_lens_k",
        "max_length_q",
        "max_length_k",
        "logits_processor",
        "is_first_iteration",
    ]
)


class SheafStatePreTrainedModel(PreTrainedModel):
    """Initialisation and loading, shared by the models."""

    config_class = SheafStateConfig
    config: SheafStateConfig
    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    _no_split_modules = ["Block"]  # noqa: RUF012
    _is_stateful = True
    _supports_sdpa = True

    @classmethod
    def from_pretrained(cls, *args: Any, **kwargs: Any) -> Any:
        """Load a checkpoint; see transformers. Weights are moved off the mapped file where they lie unaligned there.

        Unaligned weights round differently in some CPU kernels, and a mapped file must not change under a model.
        """
        loaded = super().from_pretrained(*args, **kwargs)
        model = loaded[0] if isinstance(loaded, tuple) else loaded
        for tensor in (*model.parameters(), *model.buffers()):
            if tensor.device.type == "cpu" and tensor.data_ptr() % ALIGNMENT:
                tensor.data = tensor.data.clone()
        return loaded

    def pack(self, quantization: str | None = None) -> Self:
        """A copy whose linear maps are stored in 8, 4 or 2 bits a weight, for use rather than training.

        ``save_pretrained`` writes it as it is, and ``from_pretrained`` loads it without unpacking it.

        Args:
            quantization: ``int8``, ``int4`` or ``ternary``; by default what the model was trained with.

        Raises:
            InputError: the model is packed already, or neither it nor the caller says how to quantise.
        """
        return pack_model(self, quantization)

    def _wants_record(self, return_dict: bool | None) -> bool:
        return bool(self.config.return_dict if return_dict is None else return_dict)

    def _set_gradient_checkpointing(self, *args: Any, every_n_layers: int = 1, **kwargs: Any) -> None:
        """Note which layers are recomputed; transformers only tells layers of a class of its own."""
        if every_n_layers < 1:
            raise InputError(f"every_n_layers must be at least 1, not {every_n_layers}")
        super()._set_gradient_checkpointing(*args, **kwargs)
        for module in self.modules():
            if isinstance(module, SheafStateModel):
                module.checkpoint_every = every_n_layers

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        if isinstance(module, Initialized):
            for name, value in module.initial_values().items():
                initialization.copy_(getattr(module, name), value)
        else:
            super()._init_weights(module)


class SheafStateModel(SheafStatePreTrainedModel):
    """Embedding and layers. Time and memory are linear in the length but for ``site="complete"``.

    Args:
        config: the configuration.
    """

    def __init__(self, config: SheafStateConfig) -> None:
        super().__init__(config)
        self.embed_tokens: nn.Module = nn.Embedding(config.vocab_size, config.d_model)
        self.layers = nn.ModuleList([Block(config) for _ in range(config.num_layers)])
        self.norm = RMSNorm(config.d_model, config.norm_eps)
        self.gradient_checkpointing = False
        self.checkpoint_every = 1
        self.post_init()

    def get_input_embeddings(self) -> nn.Module:
        """The token embedding."""
        return self.embed_tokens

    def set_input_embeddings(self, value: nn.Module) -> None:
        """Replace the token embedding."""
        self.embed_tokens = value

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        document_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        cache: SheafStateCache | None = None,
        past_key_values: SheafStateCache | None = None,
        use_cache: bool | None = None,
        output_hidden_states: bool | None = None,
        output_site: bool = False,
        return_dict: bool | None = None,
        seq_idx: Tensor | None = None,
        cu_seq_lens_q: Tensor | None = None,
        **kwargs: Any,
    ) -> SheafStateModelOutput | tuple:
        """Run the layers.

        Args:
            input_ids: (B, T); or ``inputs_embeds``, (B, T, D).
            attention_mask: (B, T) or (B, past + T), 0 where a column is padding; padding may stand anywhere.
            document_ids: (B, T); runs of equal ids neither see nor influence each other. ``seq_idx`` is the same, and
                ``cu_seq_lens_q``, the borders of the documents of one row, serves where no other ids are given.
            position_ids: (B, T); only used to find documents: one starts where they restart.
            cache: what an earlier call returned, also accepted as ``past_key_values``; it takes on the new state.
            use_cache: whether to return the state.
            output_hidden_states: whether to return the residual streams.
            output_site: whether to return every layer's site with its edges; not with a filled cache.
            return_dict: ``False`` for a tuple.
            **kwargs: arguments that libraries pass to every model and that mean nothing here; others are refused.
        """
        unknown = kwargs.keys() - IGNORED_ARGUMENTS
        if unknown:
            raise TypeError(f"forward() got an unexpected argument {sorted(unknown)[0]!r}")
        x = self._embed(input_ids, inputs_embeds)
        shape = x.shape[0], x.shape[1]
        cache = self._cache(cache if cache is not None else past_key_values, use_cache, x)
        carried = None if cache is None else cache.rows
        if output_site and carried is not None:
            raise InputError("output_site needs the whole text in one call, not a filled cache")
        documents = document_ids if document_ids is not None else seq_idx
        if documents is None and position_ids is None and cu_seq_lens_q is not None:
            documents = documents_between(cu_seq_lens_q, shape)
        past = 0 if cache is None else cache.get_seq_length()
        begun = cache is not None and cache.begun
        arrangement = arrange(shape, x.device, attention_mask, documents, position_ids, carried, past, begun)
        if cache is not None and arrangement.rows.is_step:
            cache.begin_step()
        wanted = self.config.output_hidden_states if output_hidden_states is None else output_hidden_states
        compact = arrangement.compact(x)
        x, states, reports, streams, balance = self._layers(compact, arrangement, cache, output_site, bool(wanted))
        if cache is not None:
            cache.commit(states, arrangement.state, shape[1], self.config.state_signature, arrangement.all_begun())
        x = arrangement.restore(self.norm(x))
        output = SheafStateModelOutput(
            last_hidden_state=x,
            cache=cache,
            hidden_states=(*(arrangement.restore(s) for s in streams), x) if wanted else None,
            site=tuple(layer_site(self.config, report, arrangement) for report in reports) if output_site else None,
            aux_loss=torch.stack(balance).mean() / arrangement.rows.length.sum().clamp(min=1) if balance else None,
        )
        return output if self._wants_record(return_dict) else output.to_tuple()

    def _embed(self, input_ids: Tensor | None, inputs_embeds: Tensor | None) -> Tensor:
        if input_ids is not None and inputs_embeds is None:
            check_shape("input_ids", input_ids, ())
            return self.embed_tokens(input_ids)
        if input_ids is None and inputs_embeds is not None:
            check_shape("inputs_embeds", inputs_embeds, (self.config.d_model,))
            return inputs_embeds
        raise InputError("give exactly one of input_ids and inputs_embeds")

    def _cache(self, cache: Any, use_cache: bool | None, x: Tensor) -> SheafStateCache | None:
        if cache is None:
            if use_cache is None:
                use_cache = self.config.use_cache and not self.training
            return SheafStateCache(len(self.layers)) if use_cache else None
        if not isinstance(cache, SheafStateCache):
            raise InputError(f"cache must be one that this model returned, not a {type(cache).__name__}")
        cache.check(self.config.state_signature, x.shape[0])
        return cache

    def _layers(
        self, x: Tensor, arrangement: Arrangement, cache: SheafStateCache | None, with_edges: bool, wanted: bool
    ) -> tuple[Tensor, list[BlockState], list[BlockReport], list[Tensor], list[Tensor]]:
        """Run all layers; return the residual stream, their new states, and of each, if wanted, report and input.

        Last are the loads of routed experts.
        """
        states, reports, streams, balance = [], [], [], []
        for index, block in enumerate(self.layers.children()):
            if wanted:
                streams.append(x)
            carried = None if cache is None else cache.states[index].state
            arguments = (x, arrangement.rows, carried, cache is not None, with_edges)
            recomputed = self.gradient_checkpointing and self.training and index % self.checkpoint_every == 0
            x, state, report = self._recomputed(block, *arguments) if recomputed else block(*arguments)
            states.append(state)
            if with_edges:
                reports.append(report)
            if report.load is not None:
                balance.append(report.load.balance)
        return x, states, reports, streams, balance

    def _recomputed(
        self, block: nn.Module, x: Tensor, rows: Rows, carried: BlockState | None, *switches: bool
    ) -> tuple[Tensor, Any, BlockReport]:
        """A block whose activations are computed again in the backward pass.

        It is called with tensors alone and returns tensors alone: reentrant checkpointing passes no gradient through
        the tensors of a record.
        """
        forms: list[tuple] = []
        is_first = True

        def run(x: Tensor, *state: Tensor) -> tuple[Tensor, ...]:
            record = block(x, rows, replace_tensors(carried, state), *switches)
            if is_first:  # what is computed again must not outlive the backward pass of its layer
                forms.append(record)
            return tuple(tensors_of(record))

        tensors = self._gradient_checkpointing_func(run, x, *tensors_of(carried))
        is_first = False
        return replace_tensors(forms.pop(), tensors)


class SheafStateForCausalLM(SheafStatePreTrainedModel, GenerationMixin):
    """The model with its readout: next-token logits, loss, generation.

    Args:
        config: the configuration.
    """

    _tied_weights_keys = {"lm_head.weight": "model.embed_tokens.weight"}  # noqa: RUF012

    def __init__(self, config: SheafStateConfig) -> None:
        super().__init__(config)
        self.model = SheafStateModel(config)
        self.lm_head = Readout(config)
        self.post_init()

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        document_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        cache: SheafStateCache | None = None,
        past_key_values: SheafStateCache | None = None,
        use_cache: bool | None = None,
        labels: Tensor | None = None,
        output_hidden_states: bool | None = None,
        output_site: bool = False,
        logits_to_keep: int | Tensor = 0,
        num_items_in_batch: Tensor | int | None = None,
        return_dict: bool | None = None,
        **kwargs: Any,
    ) -> SheafStateCausalLMOutput | tuple:
        """Predict the next token at every position.

        Args:
            labels: (B, T), -100 where there is nothing to predict; they are shifted here, so they may be ``input_ids``.
            logits_to_keep: how many last columns get logits (0 for all), or their indices.
            num_items_in_batch: divisor of the summed loss instead of the number of labels.
            input_ids, attention_mask, document_ids, position_ids, inputs_embeds, cache, past_key_values, use_cache,
            output_hidden_states, output_site, return_dict, **kwargs: as in :meth:`SheafStateModel.forward`.
        """
        given = input_ids if inputs_embeds is None else inputs_embeds
        if labels is not None and given is not None and labels.shape != given.shape[:2]:
            raise InputError(f"labels must have shape {tuple(given.shape[:2])}, not {tuple(labels.shape)}")
        keeps_count = isinstance(logits_to_keep, int)
        if (labels is not None and not keeps_count) or (keeps_count and logits_to_keep < 0):
            raise InputError(
                f"logits_to_keep must be a number of last columns (or, without labels, indices), not {logits_to_keep}"
            )
        body = self.model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            document_ids=document_ids,
            position_ids=position_ids,
            inputs_embeds=inputs_embeds,
            cache=cache,
            past_key_values=past_key_values,
            use_cache=use_cache,
            output_hidden_states=output_hidden_states,
            output_site=output_site,
            return_dict=True,
            **kwargs,
        )
        kept = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep
        logits = self.lm_head(body.last_hidden_state[:, kept])
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        loss = None
        if labels is not None:
            seen = labels.numel() if attention_mask is None else attention_mask[:, -labels.shape[1] :].bool().sum()
            loss = self._loss(logits, labels, num_items_in_batch, body.aux_loss, seen)
        output = SheafStateCausalLMOutput(
            loss=loss,
            logits=logits,
            cache=body.cache,
            hidden_states=body.hidden_states,
            site=body.site,
            aux_loss=body.aux_loss,
        )
        return output if self._wants_record(return_dict) else output.to_tuple()

    def _loss(
        self,
        logits: Tensor,
        labels: Tensor,
        num_items: Tensor | int | None,
        aux_loss: Tensor | None,
        seen: Tensor | int,
    ) -> Tensor:
        targets = nn.functional.pad(labels.long(), (0, 1), value=-100)[:, 1:].to(logits.device)
        targets = targets[:, targets.shape[1] - logits.shape[1] :]
        loss = next_token_loss(logits, targets, num_items)
        if aux_loss is not None and self.training and self.config.router_aux_loss_coef:
            # The value stays the likelihood's; only the gradient learns of the load. Its sum over positions is divided
            # by what the likelihood is divided by, so that parts of a batch add up to the whole.
            divisor = (targets != -100).sum().clamp(min=1) if num_items is None else num_items
            weight = self.config.router_aux_loss_coef * torch.as_tensor(seen).to(aux_loss) / divisor
            loss = loss + weight * (aux_loss - aux_loss.detach())
        return loss

    def prepare_inputs_for_generation(
        self,
        input_ids: Tensor,
        inputs_embeds: Tensor | None = None,
        cache: SheafStateCache | None = None,
        document_ids: Tensor | None = None,
        seq_idx: Tensor | None = None,
        **kwargs: Any,
    ) -> dict[str, Any]:
        """What generation passes to a step; new tokens belong to the last document."""
        first = kwargs.get("is_first_iteration", False)
        inputs = super().prepare_inputs_for_generation(input_ids, inputs_embeds=inputs_embeds, cache=cache, **kwargs)
        documents = document_ids if document_ids is not None else seq_idx
        if documents is not None:
            given = inputs.get("inputs_embeds") if inputs.get("input_ids") is None else inputs["input_ids"]
            length = given.shape[1]
            past = 0 if cache is None or (first and documents.shape[1] == length) else cache.get_seq_length()
            column = torch.arange(past, past + length, device=documents.device).clamp(max=documents.shape[1] - 1)
            inputs["document_ids"] = documents[:, column]
        # generation hands on what it was given, a tokenizer for instance; the model takes what it knows
        return {name: value for name, value in inputs.items() if name in GENERATION_ARGUMENTS}

    def init_continuous_batching(self, *_args: Any, **_kwargs: Any) -> NoReturn:
        """Refused: continuous batching keeps pages of keys and values."""
        raise InputError(
            "continuous batching pages keys and values, of which a Sheaf-State model has none: use generate()"
        )

    def _prepare_cache_for_generation(
        self, generation_config: GenerationConfig, model_kwargs: dict[str, Any], *args: Any, **kwargs: Any
    ) -> Any:
        """Generation carries this model's state, whatever cache the configuration names."""
        cache = model_kwargs.get("cache")
        if cache is not None:
            if isinstance(cache, SheafStateCache):  # a mask of ones is gone by now, but its length was noted
                mask = model_kwargs.get("attention_mask")
                noted = getattr(generation_config, "_mask_length", cache.get_seq_length() + 1)
                cache.check_columns(noted if mask is None else mask.shape[1])
            mixin: Any = super()  # its own annotation asks more of ``self`` than any model has
            return mixin._prepare_cache_for_generation(generation_config, model_kwargs, *args, **kwargs)
        if generation_config.use_cache is not False:
            model_kwargs["cache"] = SheafStateCache(self.config.num_layers)
        return None


GENERATION_ARGUMENTS = frozenset(inspect.signature(SheafStateForCausalLM.forward).parameters) | {"logits_to_keep"}
"""Arguments of a step that generation may pass on."""
