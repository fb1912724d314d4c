"""How well a model predicts a text."""

import math
from dataclasses import asdict, dataclass

__all__ = ["Metrics"]


@dataclass(frozen=True)
class Metrics:
    """What a text costs under a model.

    Attributes:
        nats: negative log-likelihood of the text, the sum over its tokens.
        tokens: tokens of the text.
        bytes: its length in UTF-8.
    """

    nats: float
    tokens: int
    bytes: int

    @property
    def nats_per_token(self) -> float:
        """Mean negative log-likelihood of a token; depends on the tokenizer."""
        return self.nats / self.tokens

    @property
    def bits_per_byte(self) -> float:
        """Bits in which a byte of the text could be stored; compares between tokenizers."""
        return self.nats / math.log(2) / self.bytes

    @property
    def perplexity(self) -> float:
        """exp of the nats per token; infinite where that is too large for a float."""
        return math.exp(self.nats_per_token) if self.nats_per_token < math.log(1e300) else math.inf

    def record(self) -> dict[str, float]:
        """All figures, as JSON can hold them."""
        return asdict(self) | {
            "nats_per_token": self.nats_per_token,
            "bits_per_byte": self.bits_per_byte,
            "perplexity": self.perplexity,
        }
