"""``skald plugin new``: a project from templates, written whole or not at all, and never over anything."""

from __future__ import annotations

import os
import shutil
import string
import tempfile
from pathlib import Path
from typing import Literal, get_args

from skald_core.api import API_VERSION
from skald_core.authoring.naming import PluginNames
from skald_core.errors import Conflict, StartError
from skald_core.version import VERSION

__all__ = ("KINDS", "Kind", "render", "write_project")

Kind = Literal["tool", "page", "provider", "channel", "gate"]
KINDS: tuple[str, ...] = get_args(Kind)

_TEMPLATES = Path(__file__).parent / "templates"
_SUFFIX = ".tmpl"
_DOTTED = {"gitignore": ".gitignore", "github": ".github"}
"""Names that would mean something to tools in Skald's own repository, so the templates spell them without the dot."""


class _Template(string.Template):
    """``@@id`` and ``@@{id}``: neither Python, JavaScript, TOML nor GitHub's workflows use two of them in a row."""

    delimiter = "@@"


def render(names: PluginNames, kind: Kind) -> dict[str, str]:
    """Relative path to text of every file of a new project. The kind's own files come over the common ones."""
    major = API_VERSION.partition(".")[0]
    series = ".".join(VERSION.split(".")[:2])
    values = {
        "id": names.id,
        "distribution": names.distribution,
        "package": names.package,
        "snake": names.snake,
        "title": names.title,
        "class_name": names.class_name,
        "api": f">={API_VERSION},<{int(major) + 1}",
        "core": f">={series}",
    }
    found: dict[str, str] = {}
    for folder in (_TEMPLATES / "common", _TEMPLATES / kind):
        for path in sorted(folder.rglob(f"*{_SUFFIX}")):
            parts = [_DOTTED.get(part, part) for part in path.relative_to(folder).parts]
            name = "/".join(parts).removesuffix(_SUFFIX)
            name = "/".join(_DOTTED.get(part, part) for part in name.split("/"))
            name = name.replace("__package__", names.package).replace("__snake__", names.snake)
            found[name] = _Template(path.read_text(encoding="utf-8")).substitute(values)
    return found


def write_project(names: PluginNames, kind: Kind, parent: Path) -> Path:
    """Write the project into ``parent/<distribution>``; returns that folder.

    Raises Conflict when something is there already, StartError when the folder cannot be written. Then nothing was written.
    """
    target = parent.resolve() / names.distribution
    if target.exists() or target.is_symlink():
        raise Conflict(f"{str(target)!r} exists already and is left as it is; choose another name or folder")
    try:
        parent.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(prefix=f".{names.distribution}-", dir=parent))
    except OSError as error:
        raise StartError(f"cannot write into {str(parent)!r}: {error.strerror}") from None
    try:
        for name, text in render(names, kind).items():
            path = made / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8", newline="\n")
        made.chmod(0o777 & ~_umask())
        os.rename(made, target)  # noqa: PTH104 -- refuses a folder with something in it, which Path.replace says less plainly
    except OSError as error:
        raise StartError(f"cannot write {str(target)!r}: {error.strerror}") from None
    finally:
        shutil.rmtree(made, ignore_errors=True)
    return target


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
