"""Reading what Ollama says of an error."""

from __future__ import annotations

from typing import Any

from skald_core.api import clean_detail, read_json

__all__ = ("read_error",)


def read_error(body: Any) -> str | None:
    """The error in a decoded body, cleaned; None when there is none in it.

    Ollama's own form is ``{"error": "text"}``. What it passes on from the program that runs the model may be JSON inside of
    that text, or an object in its place.
    """
    error = body.get("error") if isinstance(body, dict) else None
    if isinstance(error, str) and error.lstrip()[:1] == "{":
        inner = read_error(read_json(error.encode("utf-8", "replace")))
        return inner or clean_detail(error)
    if isinstance(error, dict):
        return clean_detail(" ".join(str(error[key]) for key in ("message", "type") if error.get(key)) or str(error))
    return clean_detail(error) if isinstance(error, str) and error else None
