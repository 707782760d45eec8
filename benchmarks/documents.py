"""Our converters against markitdown, on the same files: what is kept, and how long it takes.

markitdown is no dependency: install it anywhere (`pip install 'markitdown[docx,pdf,pptx,xlsx]'` in
an environment of its own) and have its program on the PATH.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
import unicodedata
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
FOLDERS = (
    ROOT / "examples" / "document_review" / "samples",
    ROOT / "tests" / "envs" / "documents" / "files",
)
SUFFIXES = {".docx", ".pptx", ".xlsx", ".pdf", ".html", ".epub", ".ipynb", ".csv"}
LEFT_OUT = {"locked.pdf"}
"""It needs a password, which markitdown cannot be given."""
ROUNDS = 3
THEIRS = """
import json, sys, time, warnings, logging
warnings.simplefilter("ignore")
logging.disable()
from markitdown import MarkItDown
converter = MarkItDown(enable_plugins=False)
for path in sys.argv[2:]:
    seconds = []
    for _ in range(int(sys.argv[1])):
        began = time.process_time()
        text = converter.convert(path).text_content
        seconds.append(time.process_time() - began)
    print(json.dumps([path, text, min(seconds)]))
"""


class Kept(NamedTuple):
    """What a text holds."""

    words: Counter[str]
    headings: int
    tables: int
    links: set[str]


def files() -> list[Path]:
    found = (path for folder in FOLDERS for path in sorted(folder.iterdir()))
    return [path for path in found if path.suffix in SUFFIXES and path.name not in LEFT_OUT]


def program() -> Path | None:
    """Return the Python with which markitdown is installed, if it is."""
    found = shutil.which("markitdown")
    python = Path(found).resolve().parent / "python" if found else None
    return python if python is not None and python.exists() else None


def theirs(python: Path) -> dict[Path, tuple[str, float]]:
    """Return what markitdown makes of each file, and the least seconds it took."""
    command = [str(python), "-c", THEIRS, str(ROUNDS), *map(str, files())]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    lines = (json.loads(line) for line in done.stdout.splitlines())
    return {Path(path): (text, seconds) for path, text, seconds in lines}


def ours() -> dict[Path, tuple[str, float]]:
    from flowengine_envs.documents.converters import convert

    def converted(path: Path) -> tuple[str, float]:
        data = path.read_bytes()
        return _least(lambda: convert(data, path.name).markdown)

    return {path: converted(path) for path in files()}


def _least(work: Callable[[], str]) -> tuple[str, float]:
    seconds = []
    text = ""
    for _ in range(ROUNDS):
        began = time.process_time()
        text = work()
        seconds.append(time.process_time() - began)
    return text, min(seconds)


def kept(text: str) -> Kept:
    """Return what a text holds: words, filled headings, tables, addresses of links.

    Left out are what markitdown writes of the metadata of a book, and its marks of empty cells.
    """
    text = unicodedata.normalize("NFKC", text)
    prose = re.sub(r"(?m)^\*\*(?:Title|Authors|Language|Date|Identifier):\*\*.*$", " ", text)
    prose = re.sub(r"<!--.*?-->|\]\([^)]*\)|https?://\S+|\bNa[NT]\b", " ", prose)
    return Kept(
        Counter(re.findall(r"[^\W\d_]+", prose)),
        len(re.findall(r"^#{1,6} \S", text, re.MULTILINE)),
        len(re.findall(r"^\|(?: *:?-+:? *\|)+$", text, re.MULTILINE)),
        set(re.findall(r"(?:https?|mailto):[^\s)>\]]+", text)),
    )


def recall(found: Kept, wanted: Kept) -> tuple[float, float, float, float]:
    """Return which part of words, headings, tables and links of another text is there, too."""
    return (
        _part(sum((found.words & wanted.words).values()), sum(wanted.words.values())),
        _part(min(found.headings, wanted.headings), wanted.headings),
        _part(min(found.tables, wanted.tables), wanted.tables),
        _part(len(found.links & wanted.links), len(wanted.links)),
    )


def _part(found: int, wanted: int) -> float:
    return found / wanted if wanted else 1.0
