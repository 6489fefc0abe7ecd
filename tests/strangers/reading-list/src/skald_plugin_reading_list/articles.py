"""Texts saved with pages: plain files, one folder for each user, shown to their agent as a mount."""

from __future__ import annotations

import asyncio
import re
import shutil
from pathlib import Path

from skald_core import api as skald


def folder(ctx: skald.PluginContext, user: skald.User) -> Path:
    return ctx.data_dir / "articles" / user.id


async def make(ctx: skald.PluginContext, user: skald.User) -> Path:
    """The user's folder, made when it is not there."""
    path = folder(ctx, user)
    await asyncio.to_thread(path.mkdir, parents=True, exist_ok=True)
    return path


async def keep(ctx: skald.PluginContext, user: skald.User, title: str, text: str) -> str:
    """Write a text; returns its name."""
    name = (re.sub(r"[^\w-]+", "-", title.lower()).strip("-")[:60] or "page") + ".md"
    path = await make(ctx, user)
    await asyncio.to_thread((path / name).write_text, text, encoding="utf-8")
    return name


async def remove(ctx: skald.PluginContext, user: skald.User) -> None:
    await asyncio.to_thread(shutil.rmtree, folder(ctx, user), ignore_errors=True)
