"""transformers' pipeline, Trainer and Auto classes, and torchao, take the model as they take a Llama."""

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    DataCollatorForLanguageModeling,
    TorchAoConfig,
    Trainer,
    TrainingArguments,
    pipeline,
)

from sheafstate import SheafStateConfig, SheafStateForCausalLM, SheafStateModel
from sheafstate.data.tokenizers import byte_tokenizer
from sheafstate.nn.quant_linear import QuantLinear
from tests.variants import VARIANTS, examples, make_config, make_model, tokens

from .promises import Mutation, contract

names = pytest.mark.parametrize("name", VARIANTS)
TOKENIZER = byte_tokenizer()
PAD = TOKENIZER.pad_token_id

LAST_COLUMN = Mutation(
    "rows.py",
    "order = None if mask is None else torch.argsort((~mask).to(torch.int8), dim=1, stable=True)",
    "order = None",
    "padding is taken for text",
)
NO_DIVISOR = Mutation(
    "nn/readout.py",
    "if num_items is None else num_items",
    "if num_items is None or True else num_items",
    "a part of a batch takes the mean over its own labels",
)
NO_NAME = Mutation(
    "registration.py",
    "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[SheafStateConfig.model_type] = SheafStateForCausalLM.__name__",
    "_ = MODEL_FOR_CAUSAL_LM_MAPPING_NAMES",
    "Trainer does not know that labels are to be shifted",
)
NO_BODY = Mutation(
    "registration.py",
    "AutoModel.register(SheafStateConfig, SheafStateModel, exist_ok=True)",
    "AutoModel.register(SheafStateConfig, SheafStateForCausalLM, exist_ok=True)",
    "AutoModel builds the model with its readout",
)
UNTIED = Mutation(
    "modeling.py",
    '_tied_weights_keys = {"lm_head.weight": "model.embed_tokens.weight"}',
    "_tied_weights_keys = {}",
    "embedding and readout are not tied",
)

TEXTS = st.lists(
    st.text(st.characters(codec="ascii", categories=("L", "N", "P", "Z")), min_size=1, max_size=20),
    min_size=1,
    max_size=4,
)


@contract(23, breaks=LAST_COLUMN)
@names
@examples(2)
@given(prompts=TEXTS, batch=st.integers(2, 4))
def test_a_pipeline_writes_what_generate_writes(name, prompts, batch) -> None:
    model = make_model(name, vocab_size=len(TOKENIZER))
    write = pipeline("text-generation", model=model, tokenizer=byte_tokenizer(), device="cpu")
    options = {"max_new_tokens": 6, "do_sample": False, "pad_token_id": PAD}
    for prompt, [written] in zip(
        prompts, write(prompts, batch_size=batch, return_tensors=True, **options), strict=True
    ):
        ids = TOKENIZER(prompt, return_tensors="pt").input_ids
        alone = model.generate(ids, attention_mask=torch.ones_like(ids), **options)[0].tolist()
        assert written["generated_token_ids"][-len(alone) :] == alone
    texts = [write(prompt, return_full_text=full, **options)[0]["generated_text"] for full in (True, False)]
    assert texts[0] == prompt + texts[1]


def speeches(count: int, seed: int) -> list[dict]:
    """Texts of unlike length, without padding."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(2, 20, (count,), generator=generator)
    return [{"input_ids": torch.randint(256, (int(n),), generator=generator).tolist()} for n in lengths]


def make_trainer(name: str, out: Path, rows: list[dict], **options: object) -> Trainer:
    torch.manual_seed(0)
    arguments = {"max_steps": 2, "learning_rate": 1e-2, "logging_steps": 1, "save_strategy": "no", "report_to": "none"}
    arguments |= {
        "per_device_train_batch_size": 8,
        "per_device_eval_batch_size": 3,
        "disable_tqdm": True,
        "use_cpu": True,
    }
    return Trainer(
        model=make_model(name, vocab_size=len(TOKENIZER), router_aux_loss_coef=1.0),
        args=TrainingArguments(output_dir=str(out), **(arguments | options)),
        train_dataset=rows,
        eval_dataset=rows[:6],
        data_collator=DataCollatorForLanguageModeling(TOKENIZER, mlm=False),
    )


def losses(trainer: Trainer) -> list[float]:
    return [record["loss"] for record in trainer.state.log_history if "loss" in record]


@contract(23, breaks=NO_DIVISOR)
@pytest.mark.parametrize("name", ["mixture", "retrieval"])
@examples(2)
@given(parts=st.sampled_from([2, 4, 8]), seed=st.integers(0, 99))
def test_a_trainer_that_accumulates_is_one_that_does_not(name, parts, seed, tmp_path_factory) -> None:
    out, rows = tmp_path_factory.mktemp("trainer"), speeches(16, seed)
    whole = make_trainer(name, out, rows)
    cut = make_trainer(name, out, rows, per_device_train_batch_size=8 // parts, gradient_accumulation_steps=parts)
    whole.train(), cut.train()
    assert losses(cut) == pytest.approx(losses(whole), rel=1e-6)
    for (key, a), b in zip(whole.model.named_parameters(), cut.model.parameters(), strict=True):
        # AdamW's first steps divide by the size of the gradient, and so enlarge what rounding leaves of a zero
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5, msg=key)


def smoothed(model: SheafStateForCausalLM, rows: list[dict], epsilon: float) -> float:
    """Label smoothing by its definition, text by text: Szegedy et al. (2016), section 7."""
    found, count = 0.0, 0
    for row in rows:
        ids = torch.tensor([row["input_ids"]])
        logp = model(ids, use_cache=False).logits[0, :-1].log_softmax(-1)
        likelihood = logp.gather(-1, ids[0, 1:, None])[:, 0]
        found -= ((1 - epsilon) * likelihood + epsilon * logp.mean(-1)).sum().item()
        count += ids.shape[1] - 1
    return found / count


@contract(23, breaks=NO_NAME)
def test_a_trainer_smooths_labels_evaluates_and_groups_by_length(tmp_path: Path) -> None:
    rows = speeches(8, 1)
    plain = make_trainer("mixture", tmp_path, rows, max_steps=1, per_device_eval_batch_size=8)
    expected = smoothed(plain.model, rows[:6], 0.0)
    assert plain.evaluate()["eval_loss"] == pytest.approx(expected, rel=1e-5)
    predicted = plain.predict(rows[:6])
    assert predicted.predictions.shape[::2] == (6, len(TOKENIZER))
    trainer = make_trainer(
        "mixture", tmp_path, rows, label_smoothing_factor=0.2, max_steps=1, train_sampling_strategy="group_by_length"
    )
    expected = smoothed(trainer.model, rows, 0.2)
    trainer.train()
    assert losses(trainer) == pytest.approx([expected], rel=1e-4)


@contract(23, breaks=NO_BODY)
@names
def test_auto_classes_build_and_load_the_model(name, tmp_path: Path) -> None:
    config, ids = make_config(name), tokens(2, 20)
    assert type(AutoModelForCausalLM.from_config(config)) is SheafStateForCausalLM
    assert type(AutoModel.from_config(config)) is SheafStateModel
    model = make_model(name, torch.float32)
    model.save_pretrained(tmp_path)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    with torch.no_grad():
        assert torch.equal(loaded(ids).logits, model(ids).logits)
    again = AutoConfig.from_pretrained(tmp_path)
    assert type(again) is SheafStateConfig
    assert again.to_dict() == loaded.config.to_dict()
    assert again.covers == model.config.covers


def with_weights_of(quantized: SheafStateForCausalLM, plain: SheafStateForCausalLM) -> SheafStateForCausalLM:
    """A plain model with the rounded weights, none of which is further than half a step from its own."""
    theirs = dict(quantized.named_modules())
    for name, module in plain.named_modules():
        if isinstance(module, QuantLinear):
            weight, rounded = module.weight.data, theirs[name].weight.dequantize()
            step = weight.abs().amax(1, keepdim=True) / 127
            assert ((rounded - weight).abs() <= 0.51 * step).all(), name
            assert not torch.equal(rounded, weight)
            module.weight.data = rounded
    return plain


@contract(23, breaks=UNTIED)
@names
def test_torchao_rounds_the_linear_maps_and_nothing_else(name, tmp_path: Path) -> None:
    torchao = pytest.importorskip("torchao.quantization")
    model, ids = make_model(name, torch.float32), tokens(2, 30)
    model.save_pretrained(tmp_path / "whole")
    rounding = torchao.Int8WeightOnlyConfig()
    torchao.quantize_(model, rounding, lambda m, key: isinstance(m, torch.nn.Linear) and key != "lm_head")
    rounded = with_weights_of(model, make_model(name, torch.float32))
    config = TorchAoConfig(torchao.Int8WeightOnlyConfig())
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "whole", quantization_config=config).eval()
    loaded.save_pretrained(tmp_path / "rounded")
    again = AutoModelForCausalLM.from_pretrained(tmp_path / "rounded").eval()
    with torch.no_grad():
        found = model(ids).logits
        assert torch.equal(loaded(ids).logits, found)
        assert torch.equal(again(ids).logits, found)
        # a choice that is nearly a tie may turn over by rounding: nine positions of ten must agree
        near = (rounded(ids).logits - found).abs().amax(-1) < 1e-3
    assert near.float().mean() >= 0.9
    assert again.lm_head.weight is again.get_input_embeddings().weight
    options = {"attention_mask": torch.ones_like(ids), "max_new_tokens": 4, "do_sample": False, "pad_token_id": 0}
    assert torch.equal(again.generate(ids, **options), model.generate(ids, use_cache=False, **options))
