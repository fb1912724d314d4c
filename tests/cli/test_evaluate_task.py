"""``sheafstate evaluate --task`` and ``python -m sheafstate.evaluation``: tests of lm-evaluation-harness from files."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from sheafstate.data.task_files import read_pairs, read_passages
from sheafstate.evaluation.tasks import OFFLINE
from tests.variants import make_model

harness = pytest.importorskip("sheafstate.evaluation.harness")

SHARED = Path(__file__).parents[3] / "shared" / "data" / "eval"

PAIRS = {"uid": "agreement", "pairs": [["The cats sleep.", "The cats sleeps."], ["It is.", "It are."]]}
PASSAGE = {"text": "She gave him a book"}


@pytest.fixture
def run(checkpoint: Path, tmp_path: Path) -> Path:
    """A copy of the checkpoint, for records are left in it, between the files of the tests."""
    (tmp_path / "blimp.jsonl").write_text(json.dumps(PAIRS))
    (tmp_path / "lambada_openai_test.jsonl").write_text(f"{json.dumps(PASSAGE)}\n\n{json.dumps(PASSAGE)}\n")
    return Path(shutil.copytree(checkpoint, tmp_path / "run"))


@pytest.mark.parametrize(("task", "examples"), [("blimp", 2), ("lambada", 2)])
def test_it_prints_and_records_the_figures(task: str, examples: int, run: Path, printed) -> None:
    line = ["evaluate", run, "--task", task, "--data", run.parent]
    record = json.loads(printed(*line, "--json"))
    assert record == json.loads((run / "tasks" / f"{task}.json").read_text())
    assert record["examples"] == examples
    assert record["versions"].keys() >= {"sheafstate", "lm_eval", "torch"}
    assert record.keys() >= {"config", "seed", "commit", "machine", "command", "limit", "batch_size", "mark", "data"}
    shown = printed(*line, "--limit", 1, "--batch-size", 1, "--no-mark")
    for peer in OFFLINE[task].peers:
        assert peer in shown
    assert json.loads((run / "tasks" / f"{task}.json").read_text())["examples"] == 1


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--task", "blimp"], "--task blimp needs --data: the file blimp.jsonl"),
        (["--task", "lambada", "--data", "nowhere"], "nowhere does not exist: give the file, or the folder that holds"),
        (["--task", "blimp", "--data", "."], "holds no blimp.jsonl"),
        (["--task", "hellaswag", "--data", "x"], "lm_eval finds the data of hellaswag itself"),
        (["--task", "blimp", "--data", "x", "--stride", "3"], "--stride is for texts"),
        (["--task", "blimp", "--data", "x", "--validation-share", "0.1"], "--validation-share is for texts"),
        (["--task", "blimp", "--data", "x", "--limit", "0"], "limit"),
        ([], "--data is missing"),
    ],
)
def test_bad_input_is_one_sentence(
    arguments: list[str], reason: str, checkpoint: Path, refused, tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert reason in refused("evaluate", checkpoint, *arguments)


@pytest.mark.parametrize(
    ("task", "content"),
    [
        ("blimp", '{"uid": "a", "pairs": [["only one"]]}'),
        ("blimp", '{"uid": "a", "pairs": [["", "b"]]}'),
        ("blimp", '{"uid": 3, "pairs": [["a", "b"]]}'),
        ("blimp", '{"uid": "a", "pairs": "ab"}'),
        ("blimp", '{"uid": "a", "pairs": []}'),
        ("blimp", '{"text": "a passage of LAMBADA"}'),
        ("lambada", '{"text": "word"}'),
        ("lambada", '{"text": "word "}'),
        ("lambada", '{"text": 3}'),
        ("lambada", '{"text": "a \\ud800"}'),
        ("lambada", '{"uid": "a", "pairs": [["a", "b"]]}'),
        ("lambada", ""),
        ("lambada", "[1]"),
        ("blimp", "not JSON"),
        ("blimp", "\0\xff"),
    ],
)
def test_a_file_of_another_form_is_refused(task: str, content: str, checkpoint: Path, refused, tmp_path: Path) -> None:
    path = tmp_path / "file.jsonl"
    path.write_bytes(content.encode("latin-1"))
    assert "file.jsonl" in refused("evaluate", checkpoint, "--task", task, "--data", path)


def test_pairs_are_read_as_they_are_published_too(tmp_path: Path) -> None:
    rows = [{"UID": "b", "sentence_good": good, "sentence_bad": bad, "field": "f"} for good, bad in PAIRS["pairs"]]
    (tmp_path / "published.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "packed.jsonl").write_text(json.dumps(PAIRS | {"uid": "b"}))
    assert read_pairs(tmp_path / "published.jsonl") == read_pairs(tmp_path / "packed.jsonl")


@pytest.mark.skipif(not SHARED.is_dir(), reason="the published files are not here")
def test_the_published_files_are_read() -> None:
    pairs = read_pairs(SHARED / "blimp.jsonl")
    assert [len(rows) for rows in pairs.values()] == [1000] * 67
    assert len(read_passages(SHARED / "lambada_openai_test.jsonl")) == 5153


def test_without_lm_eval_a_sentence_says_what_to_install(run: Path, refused, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "lm_eval", None)
    monkeypatch.delitem(sys.modules, "sheafstate.evaluation.harness")
    sentence = refused("evaluate", run, "--task", "blimp", "--data", run.parent)
    assert "pip install 'sheafstate[evaluation]'" in sentence


@pytest.mark.slow
def test_an_unknown_task_is_refused(run: Path, refused) -> None:
    assert "lm_eval knows no task 'no_such_task'" in refused("evaluate", run, "--task", "no_such_task")


def test_predictions_that_are_no_numbers_are_no_figures(tmp_path: Path, checkpoint: Path) -> None:
    """Comparisons with NaN would count every sentence as right."""
    folder = Path(shutil.copytree(checkpoint, tmp_path / "run"))
    model = make_model("mixture", torch.float32, vocab_size=257)
    with torch.no_grad():
        model.model.norm.weight.fill_(3e38)
    model.save_pretrained(folder)
    (tmp_path / "blimp.jsonl").write_text(json.dumps(PAIRS))
    lm = harness.SheafStateLM(str(folder))
    with pytest.raises(ValueError, match="are not finite numbers"):
        harness.run_task("blimp", lm, configs=OFFLINE["blimp"].configs(tmp_path))


YAML = """
task: mine
custom_dataset: !function rows.rows
test_split: test
output_type: {kind}
doc_to_text: question
doc_to_target: answer
{rest}
"""
KINDS = {
    "loglikelihood_rolling": "metric_list: [{metric: bits_per_byte}]",
    "generate_until": "generation_kwargs: {until: ['.'], max_gen_toks: 4}\nmetric_list: [{metric: exact_match}]",
}
ROWS = """
from datasets import Dataset

def rows(**_):
    asked = [{"question": "Who?", "answer": "I, naturally."}, {"question": "", "answer": "a"}]
    return {"test": Dataset.from_list(asked)}
"""


@pytest.mark.parametrize("kind", KINDS)
def test_a_task_of_ones_own_runs(kind: str, run: Path, tmp_path: Path, printed) -> None:
    (tmp_path / "rows.py").write_text(ROWS)
    (tmp_path / "mine.yaml").write_text(YAML.format(kind=kind, rest=KINDS[kind]))
    record = json.loads(printed("evaluate", run, "--task", tmp_path / "mine.yaml", "--json"))
    assert record["examples"] == 2
    assert (run / "tasks" / "mine.json").is_file()
    assert "mine" in record["results"]


@pytest.mark.slow
def test_the_command_of_lm_eval_knows_the_model_type(run: Path, tmp_path: Path) -> None:
    (tmp_path / "rows.py").write_text(ROWS)
    (tmp_path / "mine.yaml").write_text(YAML.format(kind="loglikelihood_rolling", rest=KINDS["loglikelihood_rolling"]))
    line = ["--model", "sheafstate", "--model_args", f"pretrained={run}", "--tasks", "mine", "--batch_size", "2"]
    command = [sys.executable, "-m", "sheafstate.evaluation", "run", *line, "--include_path", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "bits_per_byte" in done.stdout
    command[command.index(f"pretrained={run}")] = "pretrained=nowhere"
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "error: nowhere does not exist"
