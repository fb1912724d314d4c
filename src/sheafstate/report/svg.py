"""Figures as files and as inline SVG that follows the reader's light or dark theme."""

import io
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from xml.etree import ElementTree

from matplotlib.figure import Figure

from sheafstate.report.style import ROLES, settings

__all__ = ["inline_svg", "save_png"]

_REFERENCE = re.compile(r"(?<=#)[^\")]+")
_REPLACED = {
    **{role.light: f"var(--{role.name})" for role in ROLES.values()},
    "'DejaVu Sans Mono'": "ui-monospace, 'DejaVu Sans Mono'",
    "'DejaVu Sans'": "system-ui, 'DejaVu Sans'",
}
_REPLACEABLE = re.compile("|".join(re.escape(text) for text in _REPLACED))
_LEFT_OUT = {"metadata", "style"}


def inline_svg(figure: Figure, name: str, description: str) -> str:
    """The figure as an ``<svg>`` element for a page that sets ``--ink`` and the other roles of ``style.ROLES``.

    Args:
        figure: the figure; its size becomes the view box, its width is the page's business.
        name: prefix of the ids inside, unique on the page.
        description: what a screen reader says instead.
    """
    buffer = io.BytesIO()
    with settings(), _any_script():
        figure.savefig(buffer, format="svg", transparent=True)
    root = ElementTree.fromstring(buffer.getvalue())
    elements = list(root.iter())
    links = [v for e in elements for k, v in e.attrib.items() if k.endswith("href") or v.startswith("url(#")]
    used = {found[0] for link in links if (found := _REFERENCE.search(link))}
    for element in elements:
        element.tag = _local(element.tag)
        element.attrib = dict(_attributes(element, name, used))
        for child in [c for c in element if _local(c.tag) in _LEFT_OUT]:
            element.remove(child)
    root.attrib = {"viewBox": root.attrib["viewBox"], "role": "img", "aria-label": description}
    return ElementTree.tostring(root, encoding="unicode")


def save_png(figure: Figure, path: Path, dots_per_inch: int = 160) -> None:
    """Write the figure in its light colours on white, whole or not at all.

    Raises:
        OSError: if the file cannot be written.
    """
    partial = path.with_name(f".{path.name}.partial")
    with settings(), _any_script():
        figure.savefig(partial, format="png", dpi=dots_per_inch, facecolor="white", metadata={"Software": None})
    partial.replace(path)


def _attributes(element: ElementTree.Element, name: str, used: set[str]) -> Iterator[tuple[str, str]]:
    """Attributes without namespaces, colours as variables, ids prefixed, and those that nothing refers to left out."""
    for key, value in element.attrib.items():
        match _local(key):
            case "id":
                if value in used:
                    yield "id", f"{name}-{value}"
            case "href" | "clip-path" as link:
                yield link, _REFERENCE.sub(lambda found: f"{name}-{found[0]}", value)
            case "style":
                yield "style", _REPLACEABLE.sub(lambda found: _REPLACED[found[0]], value)
            case "transform" if value.startswith("rotate(-0 "):
                continue
            case local:
                yield local, " ".join(value.split())


def _local(name: str) -> str:
    return name.rpartition("}")[2]


@contextmanager
def _any_script() -> Iterator[None]:
    """Let text hold what matplotlib's own font lacks: a browser has other fonts, a PNG shows a box."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"Glyph \d+ .* missing from font")
        yield
