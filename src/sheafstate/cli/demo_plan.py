"""What the demo does: one record, from which every stage takes what it needs."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sheafstate.training import TrainingOptions

__all__ = ["FOCUS", "PASSAGE", "REFERENCES", "DemoPlan"]

REFERENCES = {"nanoGPT, CPU recipe": 1.88}
"""Validation loss, nats per character, that nanoGPT's README states for its recipe for a CPU: 4 layers of width 128,
2,000 steps of 12 rows of 64 characters, on the same text and the same split."""

PASSAGE = """\
PETRUCHIO:
And you, good sir! Pray, have you not a daughter
Call'd Katharina, fair and virtuous?

BAPTISTA:
I have a daughter, sir, called Katharina."""
"""The beginning of the validation text (The Taming of the Shrew); a name and a word come again in it."""

FOCUS = "called Kathar"
"""The passage is looked at from the last letter of this: inside a name that has been there before."""


@dataclass(frozen=True)
class DemoPlan:
    """A demo.

    Attributes:
        out: folder that everything is left in.
        steps: of the training.
        seed: of everything that is drawn.
        threads: CPU threads.
        data: text to learn from.
        lengths: positions of the simulated sequences; the first is the one whose table is shown.
        characters: how many the model writes.
    """

    out: Path
    steps: int
    seed: int = 0
    threads: int = 1
    data: str | Path = "tinyshakespeare"
    lengths: tuple[int, ...] = (32_768, 1024, 4096, 16_384, 65_536, 262_144, 1_048_576)
    characters: int = 400
    prompt: str = "ROMEO:\n"

    def training(self, resume: bool = False) -> "TrainingOptions":
        """The training: with 750 steps, as many tokens as nanoGPT's recipe for a CPU, 1,536,000."""
        from sheafstate.training import TrainingOptions

        return TrainingOptions(
            data=self.data,
            out=self.out,
            tokenizer="byte",
            preset="tiny",
            steps=self.steps,
            batch_size=8,
            context=256,
            learning_rate=8e-3,
            beta2=0.99,
            warmup=min(60 / self.steps, 0.5),
            log_every=min(10, self.steps),
            validate_every=max(1, self.steps // 2),
            save_every=max(1, self.steps // 6),
            keep_checkpoints=1,
            seed=self.seed,
            threads=self.threads,
            resume=resume,
            overwrite=not resume,
            cpu=True,
        )
