"""How far two schedules of one model drift apart in single precision, beside the smallest margins of its choices.

Run it with ``python -m sheafstate.benchmarks.precision``; it prints one JSON object a seed.
"""

import json
from dataclasses import asdict, dataclass

import torch

from sheafstate.config import SheafStateConfig
from sheafstate.modeling import SheafStateForCausalLM
from sheafstate.nn.experts import Load
from sheafstate.nn.records import Site

__all__ = ["Drift", "measure_drift"]

LIMIT = 1e-4


@dataclass(frozen=True)
class Drift:
    """Whole against chunked reading of one random text by one untrained model.

    Attributes:
        seed: of the model and the text.
        length: positions.
        largest: largest difference of two logits.
        positions: positions whose logits differ by more than ``LIMIT``.
        address_margin: smallest difference of the two best scores of an address, over layers, maps and positions.
        expert_margin: smallest difference of the two best probabilities of an expert, over layers and positions.
    """

    seed: int
    length: int
    largest: float
    positions: int
    address_margin: float
    expert_margin: float


@torch.no_grad()
def measure_drift(seed: int, length: int = 1000, cut: int = 65, preset: str = "tiny") -> Drift:
    """Read a text whole, and in two chunks cut at ``cut``, in float32."""
    torch.manual_seed(seed)
    model = SheafStateForCausalLM(SheafStateConfig.from_preset(preset)).eval()
    ids = torch.randint(model.config.vocab_size, (1, length))
    margins: dict[str, list[float]] = {"site": [], "experts": []}

    def note_site(_part: torch.nn.Module, _inputs: tuple, site: Site) -> None:
        if site.log_unity is not None:
            unity = site.log_unity.double().exp().clamp(max=1 - 1e-12)
            margins["site"].append(float(torch.atanh(unity).min()) / 16)

    def note_experts(_part: torch.nn.Module, _inputs: tuple, output: tuple[torch.Tensor, Load | None]) -> None:
        if output[1] is not None:
            best = output[1].probabilities.topk(2, -1).values
            margins["experts"].append(float((best[..., 0] - best[..., 1]).min()))

    handles = []
    for name, part in model.named_modules():
        if name.endswith(".site"):
            handles.append(part.register_forward_hook(note_site))
        elif name.endswith(".experts"):
            handles.append(part.register_forward_hook(note_experts))
    whole = model(ids, use_cache=False).logits
    for handle in handles:
        handle.remove()
    first = model(ids[:, :cut], use_cache=True)
    rest = model(ids[:, cut:], cache=first.cache).logits
    differences = (torch.cat([first.logits, rest], 1) - whole).abs().amax(-1)
    over = int((differences > LIMIT).sum())
    least = [min(found, default=float("inf")) for found in margins.values()]
    return Drift(seed, length, float(differences.max()), over, *least)


def main() -> None:
    """Ten seeds, one thread."""
    torch.set_num_threads(1)
    for seed in range(10):
        print(json.dumps(asdict(measure_drift(seed))))


if __name__ == "__main__":
    main()
