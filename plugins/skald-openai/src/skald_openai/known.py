"""What is known of models by their name (``data/models.toml``)."""

from __future__ import annotations

import functools
import re
from fnmatch import fnmatchcase
from pathlib import Path

import msgspec

from skald_core.api import ModelInfo

__all__ = ("Traits", "known_info", "parameters", "speaks_chat", "traits_of", "with_size")

WEAK_BELOW = 4.5
"""Billions of parameters below which a model is treated as weak: its prompts are kept short."""

_SIZE = re.compile(r"(?<![a-z0-9.])(\d{1,4}(?:\.\d+)?)(b|m)(?![a-z0-9])")


class _Model(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    match: tuple[str, ...]
    context: int
    capabilities: frozenset[str]
    output: int | None = None


class Traits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a family needs on the wire, whoever serves it; the file says what each word means."""

    match: tuple[str, ...] = ()
    echo: bool = False
    bridge: bool = False
    marks: bool = False
    tool_messages: bool = False


class _Names(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    match: tuple[str, ...]


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    not_chat: _Names
    model: tuple[_Model, ...]
    trait: tuple[Traits, ...]


@functools.cache
def _file() -> _File:
    path = Path(__file__).parent / "data" / "models.toml"
    return msgspec.toml.decode(path.read_bytes(), type=_File)


def _short(model: str) -> str:
    return model.strip().rstrip("/").rsplit("/", 1)[-1].lower()


def _fits(name: str, globs: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, glob) for glob in globs)


@functools.lru_cache(maxsize=512)
def known_info(model: str) -> ModelInfo | None:
    """What the table says of ``model``, its size taken from its name; None for an unknown family."""
    name = _short(model)
    for row in _file().model:
        if _fits(name, row.match):
            info = ModelInfo(row.context, row.output, row.capabilities)
            return with_size(info, parameters(name))
    return None


@functools.lru_cache(maxsize=512)
def traits_of(model: str) -> Traits:
    """All traits whose globs fit ``model``."""
    name = _short(model)
    found = [trait for trait in _file().trait if _fits(name, trait.match)]
    return Traits(
        echo=any(t.echo for t in found),
        bridge=any(t.bridge for t in found),
        marks=any(t.marks for t in found),
        tool_messages=any(t.tool_messages for t in found),
    )


def speaks_chat(model: str) -> bool:
    """False for names of models that embed, draw, transcribe or judge instead of talking."""
    return not _fits(_short(model), _file().not_chat.match)


def parameters(text: str) -> float | None:
    """Billions of parameters in a name such as ``Qwen2.5-Coder-1.5B-Instruct`` or a size such as ``7.6B``.

    None when it holds none. Of several (``30b-a3b``) the first, which is the whole.
    """
    found = _SIZE.search(text.lower())
    if found is None:
        return None
    return float(found[1]) / (1000 if found[2] == "m" else 1)


def with_size(info: ModelInfo, billions: float | None) -> ModelInfo:
    """``info``, marked weak when the model is small."""
    if billions is None or billions >= WEAK_BELOW:
        return info
    return msgspec.structs.replace(info, weak=True)
