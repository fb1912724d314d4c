"""What the tests need of a Markdown file: fenced blocks, commands, links, and the anchors of its headings."""

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]

_FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ +(.+?) *$", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A fenced block: the language after the fence, and what is inside."""

    language: str
    text: str


class Document:
    """A Markdown file, by its path from the root of the repository."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.text = path.read_text(encoding="utf-8")
        self.blocks = [Block(found[2], found[3]) for found in _FENCE.finditer(self.text)]
        self.prose = _FENCE.sub("", self.text)

    def __repr__(self) -> str:
        return str(self.path.relative_to(ROOT))

    @property
    def links(self) -> list[str]:
        """Targets of links and images, in the prose."""
        return _LINK.findall(self.prose)

    @property
    def anchors(self) -> set[str]:
        """What a link may put after ``#``: headings as GitHub writes them."""
        return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in _HEADING.findall(self.prose)}

    def code(self, language: str) -> list[str]:
        """Blocks of a language."""
        return [block.text for block in self.blocks if block.language == language]

    def commands(self, program: str) -> list[list[str]]:
        """Command lines of a program in the ``bash`` blocks, as lists of words without the comments."""
        lines = "\n".join(self.code("bash")).replace("\\\n", " ").splitlines()
        split = (shlex.split(line, comments=True) for line in lines)
        return [words for words in split if words and words[0] == program]


DOCUMENTS = [Document(path) for path in sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])]
