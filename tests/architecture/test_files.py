"""Sizes, names and forbidden words of single files, and each rule seen to fail."""

from pathlib import Path

import pytest

from . import text_rules
from .conftest import Build
from .source import Source, read_tree

ROOT = Path(__file__).parents[2]
EVERYWHERE = [text_rules.too_long, text_rules.grab_bag, text_rules.anchorless, text_rules.banner]
SHIPPED = [text_rules.unsafe, text_rules.off_the_screen]


def read(*folders: str) -> list[Source]:
    return [source for folder in folders for source in read_tree(ROOT / folder)]


@pytest.mark.parametrize("rule", EVERYWHERE, ids=lambda rule: rule.__name__)
def test_every_file_keeps(rule) -> None:
    sources = read("src", "tests", "examples")
    assert len(sources) > 20
    assert [fault for source in sources for fault in rule(source)] == []


@pytest.mark.parametrize("rule", SHIPPED, ids=lambda rule: rule.__name__)
def test_every_shipped_file_keeps(rule) -> None:
    assert [fault for source in read("src", "examples") for fault in rule(source)] == []


def test_every_kernel_has_a_twin() -> None:
    assert [fault for source in read("src/sheafstate/ops") for fault in text_rules.twinless(source)] == []


def faults(build: Build, rule, text: str, name: str = "package/module.py") -> list[str]:
    return [fault for source in build({name: text}) for fault in rule(source)]


def test_long_files_are_seen(build: Build) -> None:
    assert faults(build, text_rules.too_long, "a = 1\n" * 400) == []
    assert len(faults(build, text_rules.too_long, "a = 1\n" * 401)) == 1


def test_long_functions_are_seen(build: Build) -> None:
    def function(lines: int) -> str:
        return "def f():\n    '''Says\n\n    a lot.\n    '''\n" + "    a = 1\n" * lines

    assert faults(build, text_rules.off_the_screen, function(60)) == []
    assert len(faults(build, text_rules.off_the_screen, function(61))) == 1


@pytest.mark.parametrize("name", ["package/utils.py", "helpers.py", "package/common/module.py"])
def test_names_after_nothing_are_seen(build: Build, name: str) -> None:
    assert faults(build, text_rules.grab_bag, "", name)


@pytest.mark.parametrize("text", ["def scan(): ...", "def scan(): ...\ndef scam_reference(): ..."])
def test_missing_twins_are_seen(build: Build, text: str) -> None:
    assert len(faults(build, text_rules.twinless, text, "scan.py")) == 1
    assert faults(build, text_rules.twinless, "def scan(): ...\ndef scan_reference(): ...", "scan.py") == []


UNSAFE = [
    "import pickle",
    "def f():\n    from cloudpickle import loads",
    "eval('1')",
    "exec('a = 1')",
    "AutoModel.from_pretrained(path, trust_remote_code=True)",
    "options = {'trust_remote_code': True}",
    "trust_remote_code = False",
    "torch.load(path)",
    "torch.load(path, weights_only=False)",
    "numpy.load(path, allow_pickle=True)",
]


@pytest.mark.parametrize("text", UNSAFE)
def test_unsafe_code_is_seen(build: Build, text: str) -> None:
    assert len(faults(build, text_rules.unsafe, text)) == 1


@pytest.mark.parametrize(
    "text", ["model.eval()", "torch.load(path, weights_only=True)", "'''Never uses pickle or trust_remote_code.'''"]
)
def test_safe_code_is_let_through(build: Build, text: str) -> None:
    assert faults(build, text_rules.unsafe, text) == []


@pytest.mark.parametrize("text", ["# TODO: later", "a = 1  # FIXME", "def f():\n    '''XXX why?'''", "# TODO(me): x"])
def test_anchorless_notes_are_seen(build: Build, text: str) -> None:
    assert len(faults(build, text_rules.anchorless, text)) == 1


@pytest.mark.parametrize("text", ["# TODO(#12): when torch has it", "a = 1  # FIXME #3", "mark = 'TODO'"])
def test_anchored_notes_are_let_through(build: Build, text: str) -> None:
    assert faults(build, text_rules.anchorless, text) == []


@pytest.mark.parametrize("text", ["# -----", "# ==== Model ====", "#" * 40, "# Model ------", "    ### Model", "# ───"])
def test_banners_are_seen(build: Build, text: str) -> None:
    assert len(faults(build, text_rules.banner, f"if True:\n{text}\n    pass")) == 1


@pytest.mark.parametrize("text", ["# a - b - c", "# the range 1 -- 3", "line = '# -----'", "# x_t = a_t - b_t"])
def test_plain_comments_are_let_through(build: Build, text: str) -> None:
    assert faults(build, text_rules.banner, text) == []
