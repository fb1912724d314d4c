"""The Auto classes know the model whatever is imported first, and help and simulation need no PyTorch."""

import subprocess
import sys

import pytest

CHECK = """
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM
config = AutoConfig.for_model("sheafstate", d_model=16, num_layers=1, d_head=4, heads={"local": 1})
assert type(AutoModelForCausalLM.from_config(config)).__name__ == "SheafStateForCausalLM"
assert type(AutoModel.from_config(config)).__name__ == "SheafStateModel"
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
assert MODEL_FOR_CAUSAL_LM_MAPPING_NAMES["sheafstate"] == "SheafStateForCausalLM"
"""

ORDERS = {
    "ours first": "import sheafstate",
    "theirs first": "from transformers import AutoModelForCausalLM\nimport sheafstate",
    "theirs lazily": "import transformers\nimport sheafstate",
    "configurations first": "from transformers import AutoConfig\nimport sheafstate",
    "our configuration": "from sheafstate import SheafStateConfig",
    "our model": "from sheafstate import SheafStateForCausalLM",
    "our module": "import sheafstate.modeling",
    "a pipeline": "import sheafstate\nfrom transformers import pipeline",
    "a trainer": "import sheafstate.training",
}


def run(code: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-W", "error", "-c", code]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.parametrize("order", ORDERS)
def test_any_order_of_imports_registers(order) -> None:
    result = run(ORDERS[order] + CHECK)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize(
    "code",
    [
        "import sheafstate",
        "import sheafstate.simulation",
        "import sheafstate.edges",
        "import sheafstate.cli",
        "import sheafstate; dir(sheafstate)",
    ],
)
def test_light_imports_leave_torch_alone(code) -> None:
    result = run(f"{code}\nimport sys\nassert not {{'torch', 'transformers'}} & set(sys.modules)")
    assert result.returncode == 0, result.stderr


def test_every_public_name_is_there_and_no_other() -> None:
    code = "from sheafstate import *\nimport sheafstate\nassert all(hasattr(sheafstate, n) for n in sheafstate.__all__)"
    assert run(code).returncode == 0
    assert "AttributeError" in run("import sheafstate\nsheafstate.nonsense").stderr
