"""``sheafstate generate``: a text that goes on from a prompt, written as it comes."""

import json
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from sheafstate.cli.arguments import (
    CHECKPOINT,
    MOST_SEED,
    MOST_THREADS,
    MOST_TOKENS,
    PACKAGED,
    text_argument,
)
from sheafstate.errors import InputError

__all__ = ["generate_command"]

LEAST_TEMPERATURE, MOST_SCORE = 1e-9, 1e28
"""What a score is divided by, and the largest score: their quotient is within float32."""


def generate_command(
    checkpoint: Annotated[Path, typer.Argument(help=CHECKPOINT)] = PACKAGED,
    prompt: Annotated[str, typer.Argument(help="Text to go on from; without one, a text is begun.")] = "",
    max_new_tokens: Annotated[int, typer.Option(help="Tokens to write at the most.", min=1, max=MOST_TOKENS)] = 200,
    temperature: Annotated[float, typer.Option(help="Below 1 plays safe, above 1 takes risks.")] = 1.0,
    top_k: Annotated[
        int, typer.Option(help="Draw from the k likeliest tokens; 0 for all.", min=0, max=MOST_TOKENS)
    ] = 0,
    top_p: Annotated[float, typer.Option(help="Draw from the likeliest tokens that make up this share.")] = 1.0,
    greedy: Annotated[bool, typer.Option("--greedy", help="Take the likeliest token, draw nothing.")] = False,
    seed: Annotated[int, typer.Option(help="Of what is drawn.", min=0, max=MOST_SEED)] = 0,
    stop: Annotated[
        list[str] | None, typer.Option(help="End after this text; \\n is a line break; may be repeated.")
    ] = None,
    threads: Annotated[int | None, typer.Option(help="CPU threads.", min=1, max=MOST_THREADS)] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one object at the end, and nothing before.")] = False,
) -> None:
    """Go on from a prompt with a trained model.

    The text appears word by word. With --json one object is printed instead:
    "prompt", "text" (what was written), "tokens", "seconds", "seed".

    Example: sheafstate generate novels "It was a dark night" --temperature 0.8

    Example: sheafstate generate runs/demo "ROMEO:" --temperature 0.8 --max-new-tokens 400
    """
    import torch

    from sheafstate.evaluation import load_checkpoint

    text_argument(prompt, "the prompt")
    stops = [text_argument(text, "stop") for text in stop or []]
    if "" in stops:
        raise InputError("stop must be a text of at least one character, not ''")
    sampling = {} if greedy else _sampling(temperature, top_k, top_p)
    if threads is not None:
        torch.set_num_threads(threads)
    model, tokenizer = load_checkpoint(checkpoint, device="cuda" if torch.cuda.is_available() else "cpu")
    ids = tokenizer(prompt, return_tensors="pt").input_ids if prompt else _beginning(tokenizer)
    began = time.perf_counter()
    written = _write(
        model,
        tokenizer,
        ids,
        seed=seed,
        stream=not as_json,
        max_new_tokens=max_new_tokens,
        do_sample=not greedy,
        stop=stops,
        **sampling,
    )
    if as_json:
        typer.echo(
            json.dumps(
                {
                    "prompt": prompt,
                    "text": tokenizer.decode(written, skip_special_tokens=True),
                    "tokens": len(written),
                    "seconds": round(time.perf_counter() - began, 3),
                    "seed": seed,
                }
            )
        )


def _sampling(temperature: float, top_k: int, top_p: float) -> dict[str, float]:
    if not 0 < temperature < float("inf"):
        raise InputError(f"temperature must be above 0, not {temperature} (--greedy draws nothing)")
    if temperature < LEAST_TEMPERATURE:
        raise InputError(f"temperature must be at least {LEAST_TEMPERATURE}, not {temperature}")
    if not 0 < top_p <= 1:
        raise InputError(f"top-p must be above 0 and at most 1, not {top_p}")
    return {"temperature": temperature, "top_k": top_k, "top_p": top_p}


def _measured(ids: Any, scores: Any) -> Any:
    """Pass the scores of the next token on, if they are numbers that a temperature can divide."""
    if not (scores.amax(-1).abs() < MOST_SCORE).all():
        raise InputError("the model's predictions are no numbers or beyond measure: its weights are damaged")
    return scores


def _beginning(tokenizer: Any) -> Any:
    import torch

    mark = tokenizer.eos_token_id if tokenizer.bos_token_id is None else tokenizer.bos_token_id
    return torch.tensor([[mark]])


def _write(model: Any, tokenizer: Any, ids: Any, *, seed: int, stream: bool, stop: list[str], **how: Any) -> list[int]:
    """The new tokens, shown as they come if ``stream``."""
    import torch
    from transformers import LogitsProcessorList, StopStringCriteria, TextStreamer, set_seed

    set_seed(seed)
    streamer = TextStreamer(tokenizer, skip_special_tokens=True) if stream else None
    ids = ids.to(model.device)
    output = model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        pad_token_id=tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        logits_processor=LogitsProcessorList([_measured]),
        streamer=streamer,
        stopping_criteria=[StopStringCriteria(tokenizer, stop)] if stop else None,
        **how,
    )
    return output[0, ids.shape[1] :].tolist()
