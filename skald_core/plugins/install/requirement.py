"""What may be asked for: the one function through which every requirement of the page and of the command line goes.

Names are compared in their canonical form (PEP 503), so that no spelling walks around a list.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping

import msgspec
from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from skald_core.errors import BadInput, Conflict

__all__ = ("FROM_INDEX", "BadRequirement", "PluginRequirement", "Policy", "Refused", "parse_requirement")

MAX_LENGTH = 200
FROM_INDEX = "@index"
"""An entry of the allow list that means: whatever the catalog index lists."""

_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(?: ?[<>=!~][A-Za-z0-9._+!*, <>=~-]*)?")


class BadRequirement(BadInput):
    """The text is not a name with version comparisons."""

    code = "bad_requirement"


class Refused(Conflict):
    """The instance's rules keep this distribution out. ``params``: name, reason."""

    code = "plugin_refused"


class PluginRequirement(msgspec.Struct, frozen=True):
    """A canonical distribution name and the versions wanted (empty: any)."""

    name: str
    versions: str = ""

    @property
    def specifier(self) -> SpecifierSet:
        return SpecifierSet(self.versions)

    def __str__(self) -> str:
        return f"{self.name}{self.versions}"


class Policy(msgspec.Struct, frozen=True):
    """The instance's own lists, canonical names. An empty ``allow`` allows everything that is not blocked.

    ``index_names`` and ``index_blocked`` (name → reason) come from the catalog index.
    """

    allow: frozenset[str] = frozenset()
    block: frozenset[str] = frozenset()
    protected: frozenset[str] = frozenset()
    index_names: frozenset[str] = frozenset()
    index_blocked: Mapping[str, str] = {}

    @classmethod
    def from_environment(
        cls,
        *,
        protected: Collection[str] = frozenset(),
        index_names: Collection[str] = frozenset(),
        index_blocked: Mapping[str, str] | None = None,
    ) -> Policy:
        """``SKALD_PLUGIN_ALLOW`` and ``SKALD_PLUGIN_BLOCK``: names separated by commas or spaces."""
        return cls(
            allow=_names(os.environ.get("SKALD_PLUGIN_ALLOW", "")),
            block=_names(os.environ.get("SKALD_PLUGIN_BLOCK", "")),
            protected=frozenset(protected),
            index_names=frozenset(index_names),
            index_blocked=dict(index_blocked or {}),
        )

    def check(self, name: str, *, dependency: bool = False) -> None:
        """Raises Refused with the reason. A dependency need not be on the allow list, but must not be blocked."""
        name = str(canonicalize_name(name))
        if name in self.protected and not dependency:
            raise Refused(
                f"{name!r} belongs to Skald itself and is no plugin; it is updated together with Skald.",
                code="plugin_is_kernel",
                name=name,
            )
        if name in self.block:
            raise Refused(f"{name!r} is blocked on this server (SKALD_PLUGIN_BLOCK).", code="plugin_blocked", name=name)
        if name in self.index_blocked:
            reason = self.index_blocked[name]
            raise Refused(
                f"{name!r} is blocked by the catalog index: {reason}",
                code="plugin_blocked_by_index",
                name=name,
                reason=reason,
            )
        if dependency or not self.allow or name in self.allow:
            return
        if FROM_INDEX in self.allow and name in self.index_names:
            return
        raise Refused(
            f"{name!r} is not on this server's list of allowed plugins (SKALD_PLUGIN_ALLOW).",
            code="plugin_not_allowed",
            name=name,
        )


def _names(text: str) -> frozenset[str]:
    parts = re.split(r"[,\s]+", text.strip())
    return frozenset(p if p == FROM_INDEX else str(canonicalize_name(p)) for p in parts if p)


def parse_requirement(text: str, policy: Policy) -> PluginRequirement:
    """``name`` or ``name`` with version comparisons, checked against the lists.

    Raises BadRequirement for anything else (an address, a path, an option, extras, markers, control characters, odd white
    space) and Refused for a name the lists keep out.
    """
    shown = text[:80]
    if len(text) > MAX_LENGTH or not _PLAIN.fullmatch(text):
        raise _bad(shown)
    try:
        parsed = Requirement(text)
    except InvalidRequirement:
        raise _bad(shown) from None
    if parsed.url or parsed.extras or parsed.marker is not None or any(s.operator == "===" for s in parsed.specifier):
        raise _bad(shown)
    wanted = PluginRequirement(str(canonicalize_name(parsed.name)), str(parsed.specifier))
    policy.check(wanted.name)
    return wanted


def _bad(shown: str) -> BadRequirement:
    return BadRequirement(
        f"{shown!r} cannot be installed from here: give a name, or a name with versions such as 'skald-plugin-x>=1.2'.",
        requirement=shown,
    )
