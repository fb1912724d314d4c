"""The Hugging Face model: embed, blocks, readout. The mathematics is in ``nn``."""

from typing import Any

import torch
from torch import nn
from transformers import GenerationConfig, GenerationMixin, PreTrainedModel, initialization

from sheafstate.config import SheafStateConfig
from sheafstate.errors import InputError
from sheafstate.nn.block import Block, BlockReport
from sheafstate.nn.readout import Readout, next_token_loss
from sheafstate.nn.records import Initialized
from sheafstate.outputs import SheafStateCausalLMOutput, SheafStateModelOutput, layer_site
from sheafstate.rows import Arrangement, arrange
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
        "cu_seq_lens_q",
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
        self.embed_tokens: nn.Module = nn.Embedding(config.vocab_size, config.d_model, config.pad_token_id)
        self.layers = nn.ModuleList([Block(config) for _ in range(config.num_layers)])
        self.norm = nn.RMSNorm(config.d_model, config.norm_eps)
        self.gradient_checkpointing = False
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
        **kwargs: Any,
    ) -> SheafStateModelOutput | tuple:
        """Run the layers.

        Args:
            input_ids: (B, T); or ``inputs_embeds``, (B, T, D).
            attention_mask: (B, T) or (B, past + T), 0 where a column is padding; padding may stand anywhere.
            document_ids: (B, T); runs of equal ids neither see nor influence each other. ``seq_idx`` is the same.
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
        cache = self._cache(cache if cache is not None else past_key_values, use_cache)
        carried = None if cache is None else cache.rows
        if output_site and carried is not None:
            raise InputError("output_site needs the whole text in one call, not a filled cache")
        documents = document_ids if document_ids is not None else seq_idx
        past = 0 if cache is None else cache.get_seq_length()
        shape = x.shape[0], x.shape[1]
        arrangement = arrange(shape, x.device, attention_mask, documents, position_ids, carried, past)
        x = arrangement.compact(x)
        streams, sites, balance = [], [], []
        for index, block in enumerate(self.layers):
            streams.append(x)
            x, report = self._run(block, x, arrangement, cache, index, output_site)
            if report.load is not None:
                balance.append(report.load.balance)
            if output_site:
                sites.append(layer_site(self.config, report, arrangement))
        if cache is not None:
            cache.rows = arrangement.state
        x = arrangement.restore(self.norm(x))
        wanted = self.config.output_hidden_states if output_hidden_states is None else output_hidden_states
        output = SheafStateModelOutput(
            last_hidden_state=x,
            cache=cache,
            hidden_states=(*(arrangement.restore(s) for s in streams), x) if wanted else None,
            site=tuple(sites) if output_site else None,
            aux_loss=torch.stack(balance).mean() / arrangement.rows.length.sum().clamp(min=1) if balance else None,
        )
        return output.to_tuple() if return_dict is False else output

    def _embed(self, input_ids: Tensor | None, inputs_embeds: Tensor | None) -> Tensor:
        if input_ids is None and inputs_embeds is not None:
            return inputs_embeds
        if input_ids is None or inputs_embeds is not None:
            raise InputError("give exactly one of input_ids and inputs_embeds")
        if input_ids.dim() != 2 or not input_ids.shape[1]:
            raise InputError(
                f"input_ids must have shape (rows, positions) with at least one position, not {tuple(input_ids.shape)}"
            )
        return self.embed_tokens(input_ids)

    def _cache(self, cache: Any, use_cache: bool | None) -> SheafStateCache | None:
        if cache is not None and not isinstance(cache, SheafStateCache):
            raise InputError(f"cache must be one that this model returned, not a {type(cache).__name__}")
        if use_cache is None:
            use_cache = self.config.use_cache and not self.training
        return SheafStateCache(len(self.layers)) if cache is None and use_cache else cache

    def _run(
        self,
        block: nn.Module,
        x: Tensor,
        arrangement: Arrangement,
        cache: SheafStateCache | None,
        index: int,
        with_edges: bool,
    ) -> tuple[Tensor, BlockReport]:
        """One layer; its new state goes into the cache."""
        state = None if cache is None else cache.states[index].state
        arguments = (x, arrangement.rows, state, cache is not None, with_edges)
        if self.gradient_checkpointing and self.training:
            x, state, report = self._gradient_checkpointing_func(block.__call__, *arguments)
        else:
            x, state, report = block(*arguments)
        if cache is not None:
            cache.states[index].replace(state, x.shape[1])
        return x, report


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
            **kwargs,
        )
        x = body.last_hidden_state
        if labels is not None and not isinstance(logits_to_keep, int):
            raise InputError("with labels, logits_to_keep must be a number of last columns, not indices")
        kept = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) and logits_to_keep else logits_to_keep
        logits = self.lm_head(x if isinstance(kept, int) else x[:, kept])
        loss = None
        if labels is not None:
            loss = self._loss(logits, labels, num_items_in_batch, body.aux_loss)
        output = SheafStateCausalLMOutput(
            loss=loss,
            logits=logits,
            cache=body.cache,
            hidden_states=body.hidden_states,
            site=body.site,
            aux_loss=body.aux_loss,
        )
        return output.to_tuple() if return_dict is False else output

    def _loss(self, logits: Tensor, labels: Tensor, num_items: Tensor | int | None, aux_loss: Tensor | None) -> Tensor:
        targets = nn.functional.pad(labels, (0, 1), value=-100)[:, 1:].to(logits.device)
        targets = targets[:, targets.shape[1] - logits.shape[1] :]
        loss = next_token_loss(logits, targets, num_items)
        if aux_loss is not None and self.training and self.config.router_aux_loss_coef:
            # the value stays the likelihood's; only the gradient learns of the load
            share = 1.0 if num_items is None else (targets != -100).sum() / num_items
            loss = loss + self.config.router_aux_loss_coef * share * (aux_loss - aux_loss.detach())
        return loss

    def prepare_inputs_for_generation(
        self, input_ids: Tensor, document_ids: Tensor | None = None, **kwargs: Any
    ) -> dict[str, Any]:
        """What generation passes to a step; new tokens belong to the last document."""
        inputs = super().prepare_inputs_for_generation(input_ids, **kwargs)
        if document_ids is not None:
            missing = input_ids.shape[1] - document_ids.shape[1]
            document_ids = torch.cat([document_ids, document_ids[:, -1:].expand(-1, max(missing, 0))], 1)
            step = inputs["input_ids"] if inputs.get("input_ids") is not None else inputs["inputs_embeds"]
            inputs["document_ids"] = document_ids[:, -step.shape[1] :]
        return inputs

    def _prepare_cache_for_generation(
        self, generation_config: GenerationConfig, model_kwargs: dict[str, Any], *args: Any, **kwargs: Any
    ) -> Any:
        """Generation carries this model's state, whatever cache the configuration names."""
        if model_kwargs.get("cache") is not None:
            mixin: Any = super()  # its own annotation asks more of ``self`` than any model has
            return mixin._prepare_cache_for_generation(generation_config, model_kwargs, *args, **kwargs)
        if generation_config.use_cache is not False:
            model_kwargs["cache"] = SheafStateCache(self.config.num_layers)
        return None
