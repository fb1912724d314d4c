"""The package says exactly these names, and importing it brings them."""

import subprocess
import sys

import pytest

import sheafstate

MODULES = ("edges", "simulation")
PUBLIC = {"SheafStateConfig", "SheafStateForCausalLM", "SheafStateModel", "__version__", *MODULES}


def test_public_names_are_these() -> None:
    assert len(sheafstate.__all__) == len(set(sheafstate.__all__))
    assert set(sheafstate.__all__) == PUBLIC


def test_public_names_are_reached_from_a_bare_import() -> None:
    """In a process of its own: here, another test may have imported the modules already."""
    reach = f"import sheafstate; print([name for name in {sorted(PUBLIC)} if not hasattr(sheafstate, name)])"
    done = subprocess.run([sys.executable, "-c", reach], check=True, capture_output=True, text=True)
    assert done.stdout == "[]\n"


def test_unknown_names_are_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = sheafstate.no_such_name
