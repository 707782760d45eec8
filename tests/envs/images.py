"""Container images made from a few programs of this machine, without a build or a base image."""

from __future__ import annotations

import io
import re
import shutil
import subprocess
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from flowengine_envs.sandboxes.docker.daemon import connect


def make_image(
    name: str,
    programs: Sequence[str],
    scripts: Mapping[str, str] | None = None,
    folders: Sequence[str] = (),
) -> str:
    """Create an image and return its ID.

    Args:
        name: Repository and tag.
        programs: Programs of this machine, copied to `/bin` with their shared libraries.
        scripts: Path in the image → text. They need `/bin/sh` among the programs.
        folders: Folders of this machine, copied unchanged.
    """
    system = "/usr/local/bin:/usr/bin:/bin"
    found = {f"/bin/{each}": shutil.which(each, path=system) or each for each in programs}
    modules = [str(path) for each in folders for path in Path(each).rglob("*.so")]
    argv = ["ldd", *found.values(), *modules]
    told = subprocess.run(argv, capture_output=True, text=True, check=False).stdout
    found.update({library: library for library in re.findall(r"(/\S+) \(0x", told)})
    texts = scripts or {}
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        tar.dereference = True
        places = map(Path, (*found, *texts, *folders))
        for folder in sorted({above for place in places for above in place.parents}):
            entry = tarfile.TarInfo(f".{folder}")
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(entry)
        for target, source in found.items():
            tar.add(source, target)
        for each in folders:
            tar.add(each)
        for target, text in texts.items():
            entry = tarfile.TarInfo(f".{target}")
            entry.size, entry.mode = len(text.encode()), 0o755
            tar.addfile(entry, io.BytesIO(text.encode()))
    repository, _, tag = name.rpartition(":")
    client = connect()
    client.api.import_image_from_data(buffer.getvalue(), repository=repository, tag=tag)
    return str(client.images.get(name).id)


@contextmanager
def image_of(
    name: str, programs: Sequence[str], scripts: Mapping[str, str] | None = None
) -> Iterator[str]:
    """Create an image for the duration of a context. See `make_image` for the arguments."""
    made = make_image(name, programs, scripts)
    try:
        yield made
    finally:
        connect().images.remove(name, force=True)
