"""File tools: the assistant reads, lists, searches, writes and edits the files of the person it works for."""

from __future__ import annotations

from collections.abc import Sequence

from skald_core import api as skald

__all__ = ("skald_i18n", "skald_tools")


@skald.hookimpl
def skald_tools() -> Sequence[skald.Tool]:
    """The seven tools, all on the caller's :class:`~skald_core.api.UserFs`."""
    from skald_tools_fs.listing import ListFiles
    from skald_tools_fs.reading import ReadFile
    from skald_tools_fs.searching import GrepFiles, SearchFile
    from skald_tools_fs.seen import Seen
    from skald_tools_fs.writing import AppendFile, EditFile, WriteFile

    seen = Seen()
    return (ReadFile(), WriteFile(seen), EditFile(seen), AppendFile(), ListFiles(), GrepFiles(), SearchFile())


@skald.hookimpl
def skald_i18n(ctx: skald.PluginContext) -> dict[str, dict[str, str]]:
    return ctx.load_i18n()
