"""What each of two processes does for ``test_parallel``: started by torchrun, it leaves a JSON file."""

import json
import sys
from pathlib import Path

import torch
import torch.distributed as dist

from sheafstate.parallel import read_in_parallel
from tests.variants import VARIANTS, make_model, tokens

LENGTH = 50
BORDERS = {"even": (0, 25, LENGTH), "one behind": (0, LENGTH - 1, LENGTH), "one before": (0, 1, LENGTH)}


def inputs(case: str) -> dict[str, torch.Tensor]:
    """Columns of two rows: bare, with holes and padding, or packed."""
    if case == "masked":
        mask = torch.ones(2, LENGTH, dtype=torch.long)
        mask[0, :7] = mask[1, 20:28] = mask[1, -3:] = 0
        return {"attention_mask": mask}
    return {"document_ids": (torch.arange(LENGTH) // 17).expand(2, -1)} if case == "packed" else {}


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, found = dist.get_rank(), {}
    for name in VARIANTS:
        if name == "complete":
            continue
        model, ids = make_model(name), tokens(2, LENGTH + 1)
        text, later = ids[:, :-1], ids[:, -1:]
        for case in ("bare", "masked", "packed"):
            given = inputs(case)
            with torch.no_grad():
                whole = model(text, **given)
                after = model(later, cache=whole.cache).logits
            for cut, borders in BORDERS.items():
                columns = slice(borders[rank], borders[rank + 1])
                mine = {key: value[:, columns] for key, value in given.items()}
                part = read_in_parallel(model, text[:, columns], **mine)
                seen = mine.get("attention_mask", torch.ones_like(text[:, columns])).bool()
                errors = [(part.logits - whole.logits[:, columns])[seen].abs().max().item() if seen.any() else 0.0]
                if rank == 1:
                    with torch.no_grad():
                        errors.append((model(later, cache=part.cache).logits - after).abs().max().item())
                found[f"{name} {case} {cut}"] = max(errors)
    Path(sys.argv[1]).with_suffix(f".{rank}.json").write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main()
