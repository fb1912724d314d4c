"""The configuration of a Sheaf-State model: validated fields and presets, nothing else."""

import dataclasses
import difflib
import sys
from typing import Any

from transformers import PreTrainedConfig

from sheafstate.errors import InputError
from sheafstate.patches import HEAD_TYPES, INTERVAL_TYPES, PatchType

__all__ = ["GLUINGS", "PRESETS", "QUANTIZATIONS", "SITES", "SheafStateConfig"]

GLUINGS = ("plain", "sheaf")
SITES = ("sheaf", "window", "complete")
DIRECTIONS = ("independent", "orthogonal")
QUANTIZATIONS = ("none", "int8", "int4", "ternary")
CHOICES = {"site": SITES, "gluing": GLUINGS, "directions": DIRECTIONS, "quantization": QUANTIZATIONS}

LEAST = {
    "vocab_size": 1,
    "d_model": 1,
    "num_layers": 1,
    "d_head": 1,
    "d_state": 1,
    "d_conv": 1,
    "window": 1,
    "num_kept": 1,
    "num_anchors": 1,
    "retrieval_degree": 1,
    "num_addresses": 2,
    "d_address": 1,
    "d_ff": 0,
    "num_experts": 0,
    "d_expert": 0,
}
"""The least allowed value of every whole number."""

MOST, MOST_HEADS, MOST_LAYERS = 2**24, 2**12, 2**10
"""The largest allowed whole number, number of heads of a type, and number of layers: more is a mistake."""

MOST_NUMBER = sys.float_info.max
DTYPES = ("float32", "bfloat16", "float16", "float64")

STATE_FIELDS = (
    "num_layers",
    "d_head",
    "d_state",
    "d_conv",
    "window",
    "num_kept",
    "num_anchors",
    "retrieval_degree",
    "num_addresses",
    "d_address",
)

EVEN = ("d_head", "num_addresses")
POSITIVE = ("rope_theta", "norm_eps", "initializer_range")
SWITCHES = (
    "output_gate",
    "write_licence",
    "retrieval_recency",
    "packed_weights",
    "use_cache",
    "tie_word_embeddings",
)

PRESETS = {"tiny": 4, "small": 10, "base": 22}
"""The dial of every preset: its number of layers. About 0.9 M, 12 M and 115 M parameters without embeddings."""

MIXTURE = {PatchType.LOCAL: 5, PatchType.RETRIEVAL: 2, PatchType.WORKSPACE: 6}
"""Heads of each type in the smallest preset: the fewest types that lose nothing (docs/experiments.md)."""


def _mixture(depth: int) -> dict[str, int]:
    """Heads per type at a depth, growing with the width."""
    share = max(1, depth // 4) if depth < 16 else depth // 8
    return {kind.value: heads * share for kind, heads in MIXTURE.items()}


def _preset_fields(depth: int) -> dict[str, Any]:
    """The dial sets width, heads, experts and the degrees of the covers."""
    width = 32 * depth
    return {
        "num_layers": depth,
        "d_model": width,
        "d_head": 32 if depth < 16 else 64,
        "heads": _mixture(depth),
        "d_ff": width // 2,
        "d_expert": width // 8,
    }


class SheafStateConfig(PreTrainedConfig):
    """Configuration of :class:`~sheafstate.SheafStateModel`.

    Args:
        vocab_size: number of tokens.
        d_model: width of the residual stream (``hidden_size`` is an alias).
        num_layers: number of layers (``num_hidden_layers`` is an alias).
        heads: how many heads each patch type has, e.g. ``{"local": 2, "retrieval": 1}``. Types left out have none and
            cost nothing.
        d_head: width of a head's sections (its stalk); even.
        d_state: width of the state of the types read by dynamics.
        d_conv: taps of the convolution before the dynamics; 1 is none.
        window: w, positions that a local head reads, itself included.
        num_kept: s, first positions of a document that an instruction head keeps for good.
        num_anchors: r_a, licensed anchors that an instruction head reads.
        retrieval_degree: r, written positions of an address that a retrieval head reads.
        retrieval_recency: whether of the entries that match the newer ones count more, by a slope over the logarithm of
            their age that each head learns.
        num_addresses: K, addresses of a map; even.
        d_address: width of the vectors that are hashed to addresses.
        directions: ``independent`` random directions, of which a few get most of the positions, or ``orthogonal``
            ones, which get equal shares: more is recalled from as many slots. On text the first are the default until
            more seeds decide.
        site: ``sheaf``, or the covers of the diagnosis and the baselines: ``window`` (every head local) and
            ``complete`` (every head reads every earlier position, at quadratic cost).
        gluing: ``plain`` (a concatenation, as in attention) or ``sheaf`` (each head is licensed, and held back where
            it disagrees with the others).
        output_gate: whether glued sections are gated by silu of a projection.
        write_licence: whether retrieval heads choose what is written.
        d_ff: width of the shared SwiGLU.
        num_experts: routed experts; 0 for none.
        d_expert: width of a routed expert.
        router_aux_loss_coef: weight of the gradient that balances the experts' load.
        quantization: ``none``, ``int8``, ``int4`` or ``ternary`` weights with 8-bit activations.
        packed_weights: whether the weights exist in their packed low-bit form alone, for use and not for training; what
            :meth:`SheafStateForCausalLM.pack` makes.
        rope_theta: base of the rotary embeddings.
        norm_eps: epsilon of the RMS norms.
        initializer_range: standard deviation of the embeddings. Linear maps start at 1/sqrt(fan-in), those into the
            residual stream at this many times less, so that no branch drowns the embedding at first.
        use_cache, tie_word_embeddings: as in transformers.
        bos_token_id, eos_token_id, pad_token_id: ids of special tokens, if there are any.

    Raises:
        InputError: a value is impossible; the sentence names it and what is allowed.
    """

    model_type = "sheafstate"
    attribute_map = {"hidden_size": "d_model", "num_hidden_layers": "num_layers"}  # noqa: RUF012
    keys_to_ignore_at_inference = ["cache", "past_key_values", "site", "hidden_states", "aux_loss"]  # noqa: RUF012

    vocab_size: int = 256
    d_model: int = 128
    num_layers: int = 4
    heads: dict[str, int] | None = None
    d_head: int = 32
    d_state: int = 32
    d_conv: int = 4
    window: int = 32
    num_kept: int = 4
    num_anchors: int = 12
    retrieval_degree: int = 16
    retrieval_recency: bool = False
    num_addresses: int = 64
    d_address: int = 16
    directions: str = "independent"
    site: str = "sheaf"
    gluing: str = "plain"
    output_gate: bool = True
    write_licence: bool = False
    d_ff: int = 64
    num_experts: int = 0
    d_expert: int = 16
    router_aux_loss_coef: float = 0.01
    quantization: str = "none"
    packed_weights: bool = False
    rope_theta: float = 10000.0
    norm_eps: float = 1e-6
    initializer_range: float = 0.02
    use_cache: bool = True
    tie_word_embeddings: bool = True
    bos_token_id: int | None = None
    eos_token_id: int | list[int] | None = None
    pad_token_id: int | None = None

    def __post_init__(self, **kwargs: Any) -> None:
        if self.heads is None:
            self.heads = _mixture(PRESETS["tiny"])
        for name in kwargs:
            # transformers lets a configuration carry any name; one letter off a field is a mistake all the same
            close = difflib.get_close_matches(name, self._fields(), 1, 0.85)
            if close and name not in self._fields():
                raise InputError(f"there is no field {name!r}; did you mean {close[0]!r}?")
        for name, value in (("dtype", self.dtype), ("torch_dtype", kwargs.get("torch_dtype"))):
            if value is not None and value not in DTYPES and type(value).__name__ != "dtype":
                raise InputError(f"{name} must be one of {', '.join(DTYPES)}, not {value!r}")
        try:
            super().__post_init__(**kwargs)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise InputError(f"a field that transformers knows holds what it cannot hold: {error}") from error
        self._check()

    @classmethod
    def _fields(cls) -> set[str]:
        """Names that a configuration may be given."""
        return {field.name for field in dataclasses.fields(cls)} | set(cls.attribute_map)

    @classmethod
    def from_preset(cls, preset: str, **overrides: Any) -> "SheafStateConfig":
        """A configuration from one dial (``tiny``, ``small``, ``base``) with any field set apart.

        Raises:
            InputError: unknown preset or field.
        """
        if preset not in PRESETS:
            raise InputError(f"preset must be one of {', '.join(PRESETS)}, not {preset!r}")
        return cls.from_depth(PRESETS[preset], **overrides)

    @classmethod
    def from_depth(cls, depth: int, **overrides: Any) -> "SheafStateConfig":
        """A configuration between and beyond the presets: the dial is the number of layers.

        Raises:
            InputError: impossible depth, or unknown field.
        """
        for name in overrides:
            if name not in cls._fields():
                close = difflib.get_close_matches(name, cls._fields(), 1)
                raise InputError(f"there is no field {name!r}" + (f"; did you mean {close[0]!r}?" if close else ""))
        return cls(**(_preset_fields(depth) | overrides))

    @property
    def covers(self) -> dict[PatchType, int]:
        """Heads of every type in use, in the order in which heads are laid out; the site decides the types."""
        heads = self.heads or {}
        if self.site != "sheaf":
            return {PatchType.LOCAL: sum(heads.values())}
        return {kind: heads[kind] for kind in HEAD_TYPES if heads.get(kind, 0)}

    @property
    def num_heads(self) -> int:
        """Heads of all types."""
        return sum(self.covers.values())

    @property
    def interval_types(self) -> tuple[PatchType, ...]:
        """Types in use whose patches are ended by a learned boundary, in order."""
        return tuple(kind for kind in INTERVAL_TYPES if kind in self.covers)

    @property
    def num_maps(self) -> int:
        """Address maps: head i of memory and of retrieval both use map i."""
        return max(self.covers.get(PatchType.MEMORY, 0), self.covers.get(PatchType.RETRIEVAL, 0))

    @property
    def state_signature(self) -> tuple:
        """What the shapes of a decoding state follow from; a state serves models of one signature."""
        shape = [getattr(self, name) for name in STATE_FIELDS]
        return (self.site, *self.covers.items(), *shape)

    def _check(self) -> None:
        self._check_heads()
        for name, least in LEAST.items():
            value = getattr(self, name)
            most = MOST_LAYERS if name == "num_layers" else MOST
            if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
                raise InputError(f"{name} must be a whole number from {least} to {most}, not {value!r}")
        for name in EVEN:
            if getattr(self, name) % 2:
                raise InputError(f"{name} must be even, not {getattr(self, name)}")
        if self.num_experts and not self.d_expert:
            raise InputError(f"d_expert must be at least 1 where there are experts, not {self.d_expert}")
        for name, allowed in CHOICES.items():
            if getattr(self, name) not in allowed:
                raise InputError(f"{name} must be one of {', '.join(allowed)}, not {getattr(self, name)!r}")
        for name in POSITIVE:
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= MOST_NUMBER:
                raise InputError(f"{name} must be a positive number, not {value!r}")
        value = self.router_aux_loss_coef
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= MOST_NUMBER:
            raise InputError(f"router_aux_loss_coef must be a number of at least 0, not {value!r}")
        for name in SWITCHES:
            if not isinstance(getattr(self, name), bool):
                raise InputError(f"{name} must be true or false, not {getattr(self, name)!r}")
        if self.packed_weights and self.quantization == "none":
            raise InputError("packed_weights needs a quantization of int8, int4 or ternary, not 'none'")
        self._check_tokens()

    def _check_tokens(self) -> None:
        for name in ("bos_token_id", "eos_token_id", "pad_token_id"):
            value = getattr(self, name)
            several = isinstance(value, list | tuple) and name == "eos_token_id"
            for token in value if several else [] if value is None else [value]:
                if isinstance(token, bool) or not isinstance(token, int) or not 0 <= token < self.vocab_size:
                    raise InputError(f"{name} must be a token from 0 to {self.vocab_size - 1}, not {token!r}")

    def _check_heads(self) -> None:
        allowed = ", ".join(HEAD_TYPES)
        if not isinstance(self.heads, dict):
            raise InputError(f"heads must map patch types to counts, not {self.heads!r}")
        for kind, count in self.heads.items():
            if kind not in HEAD_TYPES and not (kind == PatchType.OUTPUT and count == 0):
                raise InputError(f"heads names the patch type {kind!r}; the types that have heads are {allowed}")
            if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count <= MOST_HEADS:
                raise InputError(f"heads.{kind} must be a whole number from 0 to {MOST_HEADS}, not {count!r}")
        self.heads = {str(kind): count for kind, count in self.heads.items()}
        if not sum(self.heads.values()):
            raise InputError(f"heads must give at least one head to one of {allowed}")
