"""The figures of a run as files: those that it has results for, and a sentence where it has none."""

from pathlib import Path

import pytest

from sheafstate.errors import InputError
from sheafstate.report.images import write_images, write_site_images
from sheafstate.report.schema import read_passage

FIGURES = {
    "history.jsonl": {"loss.png"},
    "simulation.json": {"coverage.png", "scaling.png"},
    "site.json": {"site-layer-1.png", "site-layer-2.png"},
}


def names(paths: list[Path]) -> set[str]:
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in paths)
    return {path.name for path in paths}


def test_a_run_gives_every_figure(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "some" / "where"
    assert names(write_images(run, out)) == set().union(*FIGURES.values()) == {path.name for path in out.iterdir()}


@pytest.mark.parametrize("kept", FIGURES)
def test_figures_come_from_the_files_that_are_there(run: Path, tmp_path: Path, kept: str) -> None:
    for name in {*FIGURES, "metrics.json"} - {kept}:
        (run / name).unlink()
    assert names(write_images(run, tmp_path / "out")) == FIGURES[kept]


def test_a_run_without_results_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"holds no history\.jsonl"):
        write_images(tmp_path, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_passage_gives_a_picture_a_layer(run: Path, tmp_path: Path) -> None:
    assert names(write_site_images(read_passage(run / "site.json"), tmp_path)) == FIGURES["site.json"]
