"""Our options in the words of ``transformers``."""

import os
from pathlib import Path

import torch
from transformers import TrainingArguments

from sheafstate.errors import InputError
from sheafstate.training.options import SCHEDULES, TrainingOptions

__all__ = ["training_arguments"]

_BETA1 = 0.9


def training_arguments(options: TrainingOptions) -> TrainingArguments:
    """Arguments of the Trainer; making them joins the processes that a launcher started, over gloo on the CPU.

    The batch of a step is the options' over all processes. The last rows of an epoch, too few for a step, are left
    out, so that every step has the same number; the shifted rows of the next epoch hold them.

    Raises:
        InputError: the rows of a step cannot be shared out evenly.
    """
    use_cpu = options.cpu or not torch.cuda.is_available()
    launched = int(os.environ.get("WORLD_SIZE", "1")) > 1  # alone, a backend without its group is an error
    held_out = options.validation_share > 0 or options.validation_data is not None
    decay = {"num_decay_steps": round(options.decay * options.steps)} if options.schedule == "wsd" else {}
    arguments = TrainingArguments(
        output_dir=str(Path(options.out)),
        max_steps=options.steps,
        gradient_accumulation_steps=options.accumulate,
        learning_rate=options.learning_rate,
        lr_scheduler_type=SCHEDULES[options.schedule],
        lr_scheduler_kwargs=decay,
        warmup_steps=options.warmup,
        weight_decay=options.weight_decay,
        adam_beta1=_BETA1,
        adam_beta2=options.beta2,
        max_grad_norm=options.max_grad_norm,
        logging_strategy="steps",
        logging_steps=options.log_every,
        logging_first_step=True,
        logging_nan_inf_filter=False,
        eval_strategy="steps" if held_out else "no",
        eval_steps=options.validate_every or max(1, options.steps // 4),
        save_strategy="steps",
        save_steps=options.save_every,
        seed=options.seed,
        data_seed=options.seed,
        bf16=options.bf16,
        activation_checkpointing=options.gradient_checkpointing,
        use_cpu=use_cpu,
        ddp_backend="gloo" if use_cpu and launched else None,
        dataloader_drop_last=True,
        dataloader_pin_memory=not use_cpu,
        remove_unused_columns=False,
        report_to="none",
        disable_tqdm=True,
    )
    arguments.per_device_train_batch_size = _rows_of_a_process(options, arguments.world_size)
    return arguments


def _rows_of_a_process(options: TrainingOptions, world_size: int) -> int:
    shares = world_size * options.accumulate
    if options.batch_size % shares:
        raise InputError(
            f"a batch of {options.batch_size} rows cannot be shared out evenly to {world_size} processes "
            f"in {options.accumulate} parts each: take a multiple of {shares}"
        )
    return options.batch_size // shares
