"""Our converters against markitdown, on the same files: what is kept, and how quickly.

markitdown is no dependency; it is installed in an environment of its own:

    python -m venv peers
    peers/bin/pip install "markitdown[docx,pdf,pptx,xlsx]"
    PEERS=peers/bin/python make bench ARGS=reading_documents

`DOCUMENTS` names folders of other files, separated as in PATH. docling is not compared: its
converter does not load without torch, even where no model is used.
"""

from __future__ import annotations

import json
import os
import re
import resource
import subprocess
import sys
import unicodedata
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

ROOT = Path(__file__).parents[1]
FOLDERS = (
    ROOT / "examples" / "document_review" / "samples",
    ROOT / "tests" / "envs" / "documents" / "files",
)
SUFFIXES = frozenset({".docx", ".pptx", ".xlsx", ".pdf", ".html", ".epub", ".ipynb", ".csv"})
LEFT_OUT = {"locked.pdf"}
"""It needs a password, which the others cannot be given."""
ROUNDS = 3
_LONG = 6
"""Letters of a word that counts as kept if it is there with other spaces."""


_THEIRS = """
from markitdown import MarkItDown
converter = MarkItDown(enable_plugins=False)
convert = lambda path: converter.convert(path).text_content
"""
_QUIET = """
import json, sys, time, warnings, logging
warnings.simplefilter("ignore")
logging.disable()
"""
_EACH = """
for path in sys.argv[2:]:
    seconds = []
    for _ in range(int(sys.argv[1])):
        began = time.process_time()
        text = convert(path)
        seconds.append(time.process_time() - began)
    print(json.dumps([path, text, min(seconds)]))
"""
_OURS = """
from flowengine_envs.documents.converting import convert as converted
convert = lambda path: converted(open(path, "rb").read(), path).markdown
"""


class Kept(NamedTuple):
    """What a text holds."""

    words: Counter[str]
    headings: int
    tables: int
    links: set[str]
    letters: str
    """All of them, without what stands between."""


def files() -> list[Path]:
    """Return the files that are compared."""
    more = [Path(each) for each in os.environ.get("DOCUMENTS", "").split(os.pathsep) if each]
    found = (path for folder in (*FOLDERS, *more) for path in sorted(folder.iterdir()))
    return [path for path in found if path.suffix in SUFFIXES and path.name not in LEFT_OUT]


def program() -> str:
    """Return the Python with which markitdown is installed; empty: it is not."""
    python = os.environ.get("PEERS", "")
    if python and subprocess.run([python, "-c", "import markitdown"], check=False).returncode:
        return ""
    return python


def theirs(python: str, paths: Sequence[Path]) -> dict[Path, tuple[str, float]]:
    """Return what markitdown makes of each file, and the least seconds it took."""
    return _converted(python, _THEIRS, paths)


def ours(paths: Sequence[Path]) -> dict[Path, tuple[str, float]]:
    """Return what our converters make of each file, and the least seconds they took."""
    return _converted(sys.executable, _OURS, paths)


def _converted(python: str, ready: str, paths: Sequence[Path]) -> dict[Path, tuple[str, float]]:
    command = [python, "-c", _QUIET + ready + _EACH, str(ROUNDS), *map(str, paths)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    lines = (json.loads(line) for line in done.stdout.splitlines() if line.startswith("["))
    return {Path(path): (text, seconds) for path, text, seconds in lines}


def process_seconds(python: str, path: Path) -> tuple[float, float]:
    """Return the processor seconds of a process that reads one file, ours and markitdown's."""
    mine, other = (
        min(_spent([each, "-c", f"{_QUIET}{ready}convert(sys.argv[1])", str(path)]) for _ in "123")
        for each, ready in ((sys.executable, _OURS), (python, _THEIRS))
    )
    return mine, other


def _spent(command: Sequence[str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, capture_output=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def kept(text: str) -> Kept:
    """Return what a text holds: words, filled headings, tables, addresses of links.

    Left out are what others write of the metadata of a book, and their marks of empty cells.
    """
    text = unicodedata.normalize("NFKC", text).replace("\\_", "_").replace("\\*", "*")
    metadata = "Title|Authors|Language|Date|Identifier|Description"
    prose = re.sub(rf"(?m)^\*\*(?:{metadata}):\*\*.*$", " ", text)
    prose = re.sub(r"<!--.*?-->|\]\([^)]*\)|https?://\S+|\bNa[NT]\b", " ", prose)
    words = re.findall(r"[^\W\d_]+", prose)
    return Kept(
        Counter(words),
        len(re.findall(r"^#{1,6} \S", text, re.MULTILINE)),
        len(re.findall(r"^\|(?: *:?-+:? *\|)+$", text, re.MULTILINE)),
        {unquote(link) for link in re.findall(r"(?:https?|mailto):[^\s)>\]\"]+", text)},
        "".join(words),
    )


def recall(found: Kept, wanted: Kept) -> tuple[float, float, float, float]:
    """Return which part of words, headings, tables and links of another text is there, too.

    Long words that the other has joined, or split, are there if their letters are.
    """
    words = (found.words & wanted.words).total() + sum(
        count
        for word, count in (wanted.words - found.words).items()
        if len(word) >= _LONG and word in found.letters
    )
    return (
        _part(words, wanted.words.total()),
        _part(min(found.headings, wanted.headings), wanted.headings),
        _part(min(found.tables, wanted.tables), wanted.tables),
        _part(len(found.links & wanted.links), len(wanted.links)),
    )


def _part(found: int, wanted: int) -> float:
    return found / wanted if wanted else 1.0
