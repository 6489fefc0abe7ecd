"""Sentences for people, with sizes in their way of writing."""

from __future__ import annotations

from collections.abc import Mapping

from skald_core.api import PluginContext

__all__ = ("size", "tell")

_BYTES = frozenset({"needed", "free", "available", "total"})


def size(count: int, locale: str) -> str:
    """Bytes in gigabytes or megabytes (powers of ten): ``1.1 GB``, ``1,1 Go``."""
    unit, value = ("G", count / 1e9) if count >= 1e9 else ("M", count / 1e6)
    number = f"{value:.1f}" if unit == "G" else f"{value:.0f}"
    french, italian = locale.startswith("fr"), locale.startswith("it")
    if french or italian:
        number = number.replace(".", ",")
    return f"{number} {unit}{'o' if french else 'B'}"


def tell(ctx: PluginContext, code: str, values: Mapping[str, object], locale: str = "") -> str:
    """The sentence of an error code. An unknown code gets the general one."""
    shown = {k: size(v, locale) if k in _BYTES and isinstance(v, int) else v for k, v in values.items()}
    key = f"error.{code}"
    text = ctx.t(key, locale, **shown)
    return ctx.t("error.crashed", locale, log="", **shown) if text.endswith(key) else text
