"""Loading a checkpoint that may be damaged, unfit, or a stranger's."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging

from sheafstate.data import saved_tokenizer
from sheafstate.errors import InputError
from sheafstate.evaluation.packaged import PACKAGED_MODELS, checkpoint_folder

__all__ = ["check_fit", "load_checkpoint"]

_PADDED_TO = (64, 128)
"""Vocabularies are often padded to a multiple of these; the ids above the tokenizer's are never sampled."""


_ADAPTER = "adapter_config.json"
_IMPLEMENTATIONS = ("attn_implementation", "experts_implementation", "_implementation_internal")


def load_checkpoint(
    folder: str | Path, *, device: str | torch.device = "cpu"
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """A model in evaluation mode, and its tokenizer, from a folder or by the name of a packaged model.

    Weights are read from safetensors alone, and nothing in the folder is run.

    Args:
        folder: what ``save_pretrained`` of a model and its tokenizer wrote, or ``novels``.
        device: where the model goes.

    Raises:
        InputError: the folder is no checkpoint, a file of it is missing or damaged, weights are missing or no numbers,
            or the tokenizer does not fit the model.
    """
    folder = checkpoint_folder(folder)
    if not folder.is_dir():
        reason = "is a file, not the folder of a checkpoint" if folder.exists() else "does not exist"
        raise InputError(f"{folder} {reason} (packaged models: {', '.join(PACKAGED_MODELS)})")
    _check_configuration(folder)
    if (folder / _ADAPTER).exists():
        raise InputError(f"{folder} holds an adapter ({_ADAPTER}), which is not loaded: merge it into the weights")
    model: Any = _model(folder)
    tokenizer = saved_tokenizer(folder)
    check_fit(model, tokenizer)
    _never_sample_the_nameless(model, tokenizer)
    return model.to(device).eval(), tokenizer


def check_fit(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
    """Raise an :class:`InputError` unless the model has as many tokens as the tokenizer, or those padded up."""
    have, need = model.config.vocab_size, _ids_needed(tokenizer)
    if have != need and have not in (-(-need // multiple) * multiple for multiple in _PADDED_TO):
        raise InputError(f"the tokenizer does not fit the model: it has {need} tokens, the model {have}")


def _ids_needed(tokenizer: PreTrainedTokenizerBase) -> int:
    """One more than the highest id, for the ids of a tokenizer may have gaps."""
    return 1 + max(tokenizer.get_vocab().values(), default=-1)


def _never_sample_the_nameless(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
    """Keep every way to generate from ids that are no token: what a vocabulary is padded with, and gaps in it."""
    nameless = set(range(model.config.vocab_size)) - set(tokenizer.get_vocab().values())
    if nameless and model.generation_config is not None:
        already = model.generation_config.suppress_tokens or ()
        model.generation_config.suppress_tokens = sorted({*already, *nameless})


def _check_configuration(folder: Path) -> None:
    """Refuse what is no configuration, or asks for code of its own: ``transformers`` would offer to run it."""
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise InputError(f"{folder} holds no checkpoint: the file config.json is missing") from error
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"the checkpoint in {folder} is damaged: config.json cannot be read ({error})") from error
    if not isinstance(config, dict) or not isinstance(config.get("model_type"), str):
        raise InputError(f"the checkpoint in {folder} is damaged: config.json names no model type")
    if _asks_for_code(config):
        raise InputError(f"the checkpoint in {folder} wants to run code of its own, which is not done")


def _asks_for_code(value: Any) -> bool:
    """Whether a configuration, or one inside it, names code to load: modules, or kernels of a repository."""
    if isinstance(value, list):
        return any(map(_asks_for_code, value))
    if not isinstance(value, dict):
        return False
    kernels = (str(inner) for name, inner in value.items() if name.endswith(_IMPLEMENTATIONS))
    return "auto_map" in value or any("/" in kernel for kernel in kernels) or any(map(_asks_for_code, value.values()))


def _model(folder: Path) -> PreTrainedModel:
    try:
        with _silence():
            config = AutoConfig.from_pretrained(str(folder), local_files_only=True)
            loaded: Any = AutoModelForCausalLM.from_pretrained(
                str(folder), config=config, local_files_only=True, use_safetensors=True, output_loading_info=True
            )
    except Exception as error:  # whatever a damaged file leads transformers into
        raise InputError(f"the checkpoint in {folder} cannot be loaded: {_first_line(error)}") from error
    model, found = loaded
    missing = sorted(found["missing_keys"])
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise InputError(f"the checkpoint in {folder} lacks weights: {missing[0]}{more}")
    for name, weight in (*model.named_parameters(), *model.named_buffers()):
        if weight.is_floating_point() and not torch.isfinite(weight).all():
            raise InputError(f"the checkpoint in {folder} is damaged: {name} holds values that are no finite numbers")
    return model


@contextmanager
def _silence() -> Iterator[None]:
    """Keep ``transformers`` from drawing bars and reports; what it finds wrong is told in a sentence."""
    verbosity, drew = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if drew:
            logging.enable_progress_bar()


def _first_line(error: Exception) -> str:
    """The gist of a library's message, which may run over many lines."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
