"""The package says exactly these names, and importing it brings them."""

import subprocess
import sys

import pytest

import sheafstate

PUBLIC = {"SheafStateConfig", "SheafStateForCausalLM", "SheafStateModel", "__version__"}
MODULES = ("edges", "simulation")


def test_public_names_are_these() -> None:
    assert len(sheafstate.__all__) == len(set(sheafstate.__all__))
    assert set(sheafstate.__all__) == PUBLIC


@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_public_names_are_there(name: str) -> None:
    assert getattr(sheafstate, name) is not None
    assert name in dir(sheafstate)


def test_modules_are_reached_from_a_bare_import() -> None:
    reach = "; ".join(["import sheafstate", *(f"sheafstate.{module}.__name__" for module in MODULES)])
    subprocess.run([sys.executable, "-c", reach], check=True)


def test_unknown_names_are_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = sheafstate.no_such_name
