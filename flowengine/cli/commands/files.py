"""`flowengine files`: the files that an execution keeps."""

from __future__ import annotations

import os
from argparse import Namespace
from collections import Counter
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path

from flowengine.cli.parsing.declared import arg, flag, section
from flowengine.cli.session import NEWEST, CliSession, session_command
from flowengine.cli.terminal.output import err, out, out_json, out_table, writing
from flowengine.cli.views.environments import SHORTEST, KeptFile, chosen, kept_files
from flowengine.errors import NotFound, StoreError, UsageError
from flowengine.sdk.texts.visible_text import printable


@session_command(
    "list the files (artifacts) that an execution keeps, or save them in a directory",
    """\
flowengine files 01k8xq7mf4jb
flowengine files 01k8xq7mf4jb report.pdf --save reports""",
    arg("execution ID", NEWEST, nargs="?"),
    arg(
        "files FILE",
        f"names of files, or at least {SHORTEST} digits of their SHA-256 (default: all files)",
        nargs="*",
        default=[],
    ),
    arg("--save DIR", "save them in this directory, which is created if it is missing", type=Path),
    section("with --save", flag("--force", "replace files that exist there")),
)
def files_command(session: CliSession, arguments: Namespace) -> None:
    execution = session.execution(arguments.execution)
    files = chosen(kept_files(session, execution), arguments.files)
    if not files and not arguments.json:
        return err(f"execution {session.short(execution)} keeps no files")
    if arguments.save is not None:
        return _save_all(session, execution, files)
    if arguments.json:
        return out_json([file._asdict() for file in files])
    rows = [[file.name, str(file.size), file.sha256[:SHORTEST], file.where] for file in files]
    out_table(rows, "NAME", "BYTES", "SHA-256", "FROM")
    command = session.command("files", session.short(execution), "--save", ".")
    err(f"to save them in the current directory: {command}")


def _save_all(session: CliSession, execution: str, files: list[KeptFile]) -> None:
    """Save files, and print where they are.

    Raises:
        UsageError: Some exist there.
    """
    arguments = session.arguments
    targets = _targets(files, arguments.save)
    there = [path for path in targets.values() if os.path.lexists(path)]
    if there and not arguments.force:
        names = ", ".join(path.name for path in there)
        hint = "--force replaces them, and --save DIR names another directory"
        raise UsageError(f"files exist in {arguments.save}: {names}", hint=hint)
    saved = []
    for file, path in targets.items():
        try:
            parts = session.engine.executions.download(execution, file.sha256)
            _save(parts, file, path, arguments.force)
        except NotFound as error:
            if arguments.files:
                raise
            err(f"{printable(file.name)} was not saved: {error.message}")
            continue
        saved.append({**file._asdict(), "path": str(path)})
        if not arguments.json:
            out(printable(str(path)))
    if arguments.json:
        out_json(saved)


def _targets(files: list[KeptFile], folder: Path) -> dict[KeptFile, Path]:
    """Return the path of each file. Different files with one name get a part of their digest."""
    same = Counter(file.name.casefold() for file in files)
    targets = {}
    for file in files:
        name = file.name
        if same[name.casefold()] > 1:
            stem, dot, suffix = name.rpartition(".")
            digits = file.sha256[:SHORTEST]
            name = f"{stem}-{digits}.{suffix}" if dot and stem else f"{name}-{digits}"
        targets[file] = folder / name
    return targets


def _save(parts: Iterable[bytes], file: KeptFile, path: Path, force: bool) -> None:
    """Write a file. If that fails, nothing is left of it, and an earlier one stays.

    Raises:
        StoreError: The content is not that of the digest.
        UsageError: The file exists, or cannot be written.
    """
    new = path.with_name(f".{file.sha256[:16]}.part") if force else path
    with writing(path):
        if force:
            new.unlink(missing_ok=True)
        try:
            with open(new, "xb") as target:
                digest = sha256()
                for part in parts:
                    digest.update(part)
                    target.write(part)
                if digest.hexdigest() != file.sha256:
                    raise StoreError(f"the content of '{file.name}' is not that of its SHA-256")
            if force:
                os.replace(new, path)
        except FileExistsError:
            raise
        except BaseException:
            new.unlink(missing_ok=True)
            raise
