"""The measurement during a run: nats per token and bits per byte over the whole validation text.

Windows of the training context, one after the other, each from an empty state: the figure compares with the training
loss, and with models that carry no state. Processes share the windows and add up what they find.
"""

import math
from dataclasses import dataclass

import torch
from accelerate import Accelerator
from torch.nn.functional import cross_entropy
from transformers import PreTrainedModel

from sheafstate.data import IGNORED, TokenStream, Windows

__all__ = ["Validation"]


@dataclass(frozen=True)
class Validation:
    """A text to measure on.

    Attributes:
        stream: its documents.
        context: tokens of a window.
        rows: windows that a process computes at a time.
    """

    stream: TokenStream
    context: int
    rows: int

    def __len__(self) -> int:
        return len(Windows.over(self.stream, self.context))

    @torch.no_grad()
    def measure(self, model: PreTrainedModel, accelerator: Accelerator) -> dict[str, float]:
        """``nats_per_token`` and ``bits_per_byte`` (nats / ln 2 / bytes of the text in UTF-8), over all processes."""
        was_training = model.training
        model.eval()
        windows = Windows.over(self.stream, self.context)
        sums = torch.zeros(2, dtype=torch.float64, device=accelerator.device)
        for batch in windows.batches(self.rows, accelerator.process_index, accelerator.num_processes):
            targets = batch.targets.to(accelerator.device)
            with accelerator.autocast(), torch.compiler.set_stance("force_eager"):
                logits = model(
                    input_ids=batch.input_ids.to(accelerator.device),
                    attention_mask=batch.attention_mask.to(accelerator.device),
                    use_cache=False,
                ).logits
            nats = cross_entropy(
                logits.float().flatten(0, 1), targets.flatten(), ignore_index=IGNORED, reduction="none"
            )
            sums[0] += nats.double().sum()
            sums[1] += (targets != IGNORED).sum()
        model.train(was_training)
        nats, tokens = accelerator.reduce(sums, reduction="sum").tolist()
        return {"nats_per_token": nats / tokens, "bits_per_byte": nats / math.log(2) / self.stream.num_bytes}
