"""The plan of the house: which part may import which, and which part may use which third party.

A part is a module or folder of the package. Of ``nn``, each letter of the tuple is a part of its own, together with the
files whose names it begins (``transport_local`` belongs to ``transport``); ``nn.block`` joins the letters, and every
other file of ``nn`` (records, low-bit linear maps) is ``nn.shared``.
"""

PACKAGE = "sheafstate"

LETTERS = frozenset({"nn.site", "nn.dynamics", "nn.transport", "nn.gluing", "nn.experts", "nn.readout"})
NN = LETTERS | {"nn", "nn.block", "nn.shared"}

_GROUND = frozenset({"shapes", "errors", "patches", "edges", "config"})
_SHARED = _GROUND | {"ops"}
_LETTER = _SHARED | {"nn.shared"}
_BLOCK = _LETTER | LETTERS
_STATE = _BLOCK | {"nn", "nn.block"}
_ROWS = _STATE | {"state"}
_OUTPUTS = _ROWS | {"rows"}
_MODEL = _OUTPUTS | {"outputs", "accounting"}
_USE = _MODEL | {"modeling", "data"}
_STUDY = _USE | {"training", "evaluation", "simulation"}

MAY_IMPORT: dict[str, frozenset[str]] = {
    "shapes": frozenset(),
    "errors": frozenset(),
    "patches": frozenset({"errors"}),
    "edges": frozenset({"errors", "patches"}),
    "config": frozenset({"errors", "patches"}),
    "accounting": frozenset({"errors", "patches", "config"}),
    "ops": frozenset({"shapes"}),
    "nn.shared": _SHARED,
    **dict.fromkeys(sorted(LETTERS), _LETTER),
    "nn.block": _BLOCK,
    "nn": _BLOCK | {"nn.block"},
    "state": _STATE,
    "rows": _ROWS,
    "outputs": _OUTPUTS,
    "low_bit": _GROUND | {"ops"},
    "modeling": _MODEL | {"low_bit"},
    "parallel": _MODEL | {"modeling"},
    "llama": frozenset({"shapes", "errors", "config", "modeling"}),
    "data": frozenset({"errors", "edges", "simulation"}),
    "training": _USE,
    "evaluation": _USE,
    "simulation": frozenset({"errors", "patches", "edges"}),
    "benchmarks": _STUDY,
    "report": frozenset({"errors", "patches"}),
    "cli": _STUDY | {"llama", "benchmarks", "report"},
    "registration": frozenset({"config", "modeling"}),
    "root": _STUDY | {"registration"},
}
"""Part → the other parts it may import. A part may always import from itself, save the letters' folder ``nn``."""

_TENSOR = NN | {"shapes", "ops", "state", "rows", "outputs", "modeling"}
_STUDIES = frozenset({"training", "evaluation", "benchmarks"})

MAY_USE: dict[str, frozenset[str]] = {
    "accelerate": _STUDIES,
    "datasets": frozenset({"data", "training", "cli"}),
    "jaxtyping": frozenset({"shapes"}),
    "lm_eval": frozenset({"evaluation"}),
    "matplotlib": frozenset({"report"}),
    "numpy": frozenset(MAY_IMPORT) - {"shapes", "errors", "patches"},
    "rich": frozenset({"cli", "training"}),
    "safetensors": _STUDIES | {"modeling", "cli"},
    "scipy": frozenset({"simulation", "evaluation", "benchmarks"}),
    "tensorboard": frozenset({"training"}),
    "tokenizers": frozenset({"data", "training"}),
    "torch": _TENSOR | _STUDIES | {"low_bit", "llama", "parallel", "data", "cli"},
    "tqdm": frozenset({"training"}),
    "transformers": _STUDIES
    | {"config", "state", "outputs", "low_bit", "modeling", "llama", "data", "cli", "registration"},
    "typer": frozenset({"cli"}),
    "yaml": frozenset({"benchmarks"}),
}
"""Third party → the parts that may use it. What is not here may not be used at all."""

ONE_ADAPTER = frozenset({"lm_eval"})
"""Third parties that one file alone may know."""

LIGHT = frozenset({"typer", "rich", "errors", "patches", "cli"})
"""What a file of ``cli`` may import before a command runs, besides the standard library, so that ``--help`` is fast."""


def part_of(module: str) -> str:
    """The part of the house that a module of the package belongs to."""
    parts = module.split(".")[1:]
    if not parts:
        return "root"
    if parts[0] == "__main__":
        return "cli"
    if parts[0] != "nn" or len(parts) == 1:
        return parts[0]
    name = f"nn.{parts[1].partition('_')[0]}"
    return name if name in LETTERS or name == "nn.block" else "nn.shared"
