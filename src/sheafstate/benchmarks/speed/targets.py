"""What is to be reached, and the works that show it."""

from dataclasses import dataclass

from sheafstate.benchmarks.speed.works import Kind, Work

__all__ = ["SHARE_OF_CEILING", "TARGETS", "Target", "target_of"]

SHARE_OF_CEILING = 0.7
"""A target is met at its figure, or at this share of the ratio that operations alone would give."""


@dataclass(frozen=True)
class Target:
    """How many times faster than a peer a work is to be.

    Attributes:
        work: the work.
        against: the peer.
        ratio: the peer's seconds over ours.
    """

    work: Work
    against: str
    ratio: float


def _training(against: str, ratios: dict[int, float]) -> list[Target]:
    return [Target(Work(Kind.TRAIN, context), against, ratio) for context, ratio in ratios.items()]


TARGETS = (
    *_training("llama", {512: 1.0, 2048: 1.5, 8192: 3.2}),
    *_training("mamba2", {512: 4.0, 2048: 4.0, 8192: 4.0}),
    *(Target(Work(Kind.PREFILL, n), "llama", ratio) for n, ratio in {2048: 1.6, 8192: 3.5, 32_768: 10.0}.items()),
    *(Target(Work(Kind.DECODE, n), "llama", ratio) for n, ratio in {128: 0.8, 8192: 3.0, 32_768: 10.0}.items()),
    Target(Work(Kind.DECODE, 128, compiled=True), "llama", 1.0),
)


def target_of(work: Work, against: str) -> float | None:
    """The ratio to be reached, if there is one."""
    return next((t.ratio for t in TARGETS if (t.work, t.against) == (work, against)), None)
