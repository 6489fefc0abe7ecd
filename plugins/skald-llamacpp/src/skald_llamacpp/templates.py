"""Chat templates this plugin puts in place of a model file's own.

The template of Qwen2.5-Coder asks for calls in ``<tool_call>`` tags with doubled braces, which its small variants do not
follow: they answer with a JSON code block that llama.cpp does not take for a call, and after a result they repeat the call
without end. With ``short-tools.jinja`` the same model's calls arrive as structured calls, the turn ends with a sentence, and
the tools cost a third of the tokens. Measurements are in this plugin's README.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

__all__ = ("read", "replacement")

_FOLDER = Path(__file__).with_name("templates")
_BY_DIGEST = {"d5495a1e5db0611132a97e46a65dbb64a642a499421228b9c8b93229097fa9a4": "short-tools.jinja"}


def replacement(chat_template: str, *, weak: bool) -> str:
    """The name of the template to use instead, or an empty string for the file's own. Only small models need one."""
    if not weak:
        return ""
    return _BY_DIGEST.get(hashlib.sha256(chat_template.encode()).hexdigest(), "")


def read(name: str) -> str:
    """The text of a replacement; empty for an empty name."""
    return (_FOLDER / name).read_text(encoding="utf-8") if name else ""
