"""Making a plan: what an act would change, found out without changing anything."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from packaging.utils import canonicalize_name

from skald_core.errors import BadInput, Conflict, NotFound
from skald_core.plugins.install import environment
from skald_core.plugins.install.catalog_index import IndexState
from skald_core.plugins.install.environment import Installed
from skald_core.plugins.install.job import Act, Change, Contributions, Difference, Plan, PlannedWheel, Step
from skald_core.plugins.install.lockfile import LockFile, missing
from skald_core.plugins.install.messages import Message
from skald_core.plugins.install.requirement import PluginRequirement, Policy, Refused, parse_requirement
from skald_core.plugins.install.resolver import Artifact, ResolveError, Resolver, direct_references
from skald_core.plugins.install.wheel import BadWheel, Wheel, read_wheel
from skald_core.plugins.manifest import Contributes, Manifest, ManifestError, read_manifest

__all__ = ("Planner", "advice_command", "orphans")


class Progress(Protocol):
    """Where a plan tells how far it is."""

    def step(self, step: Step) -> None: ...
    def say(self, key: str, **params: object) -> None: ...
    def echo(self, line: str) -> None: ...


class Planner:
    """``imported(modules)`` says whether the running server holds any of these modules in memory."""

    def __init__(
        self,
        *,
        api_version: str,
        installed: Mapping[str, Installed],
        bundled: frozenset[str],
        index: IndexState,
        lock: LockFile,
        links: Sequence[Path],
        imported: Callable[[frozenset[str]], bool],
    ) -> None:
        self._api = api_version
        self._installed = installed
        self._bundled = bundled
        self._index = index
        self._lock = lock
        self._links = links
        self._imported = imported
        self.policy = Policy.from_environment(
            protected=environment.protected_names(installed),
            index_names=frozenset(index.entries),
            index_blocked=index.blocked,
        )

    def distribution_of(self, plugin_id: str) -> Installed:
        """The installed distribution of a plugin. Raises NotFound."""
        for dist in self._installed.values():
            if plugin_id in dist.plugin_ids:
                return dist
        raise NotFound(f"no plugin {plugin_id!r} is installed", code="plugin_not_found")

    def wanted(self, act: Act, requirement: str, plugin_id: str) -> list[PluginRequirement]:
        """What an act asks for, checked before anything is started. Raises BadInput, Conflict, NotFound."""
        if act in {"install", "upgrade"} and not requirement and not plugin_id:
            raise BadInput("Name the plugin.", code="bad_requirement", requirement="")
        if act == "install":
            asked = parse_requirement(requirement, self.policy)
            if asked.name in self._installed:
                raise Conflict(
                    f"{asked.name!r} is installed already in version {self._installed[asked.name].version}; upgrade it.",
                    code="already_installed",
                    name=asked.name,
                )
            return [self._narrowed(asked)]
        if act == "upgrade":
            dist = self._upgradable(requirement, plugin_id)
            asked = parse_requirement(requirement, self.policy) if requirement else PluginRequirement(dist.name)
            self.policy.check(asked.name)
            newer = asked.versions or f">={dist.version}"  # not ">", which leaves post-releases out
            versions = f"{newer},!={dist.version}"
            return [self._narrowed(PluginRequirement(asked.name, versions))]
        if act == "restore":
            rows = missing(self._lock, self._installed)
            if not rows:
                raise Conflict("Everything that plugins.lock names is installed.", code="nothing_to_restore")
            for row in rows:
                self.policy.check(row.name)
            return [parse_requirement(f"{row.name}=={row.version}", self.policy) for row in rows]
        return []

    def _upgradable(self, requirement: str, plugin_id: str) -> Installed:
        if requirement:
            name = parse_requirement(requirement, self.policy).name
            if name not in self._installed:
                raise NotFound(f"{name!r} is not installed; install it.", code="plugin_not_found")
            dist = self._installed[name]
        else:
            dist = self.distribution_of(plugin_id)
        if dist.editable:
            raise _editable(dist)
        return dist

    def _narrowed(self, asked: PluginRequirement) -> PluginRequirement:
        entry = self._index.entries.get(asked.name)
        return asked if entry is None else entry.choose(asked, self._api)

    # -- install, upgrade, restore ---------------------------------------------------------------------------------

    async def additions(self, act: Act, wanted: Sequence[PluginRequirement], folder: Path, progress: Progress) -> Plan:
        """Resolve, fetch and look at what ``wanted`` brings. Raises SkaldError subclasses; ``folder`` keeps the wheels."""
        progress.step("resolve")
        resolver = Resolver(folder, progress.echo, self._links)
        artifacts = await self._resolve(act, wanted, resolver, folder, progress)
        if not artifacts:
            raise Conflict("There is nothing to change: what you asked for is installed.", code="nothing_to_change")
        for artifact in artifacts:
            self._check_artifact(artifact, {w.name for w in wanted})
        expected = {a.name: self._expected_hashes(a) for a in artifacts}
        for artifact in artifacts:
            if artifact.sha256 and expected[artifact.name] and artifact.sha256 not in expected[artifact.name]:
                raise _hash_mismatch(artifact.name)
        progress.step("download")
        await resolver.download(artifacts, folder / "wheels")
        progress.step("check")
        wheels = await asyncio.to_thread(lambda: [read_wheel(p) for p in sorted((folder / "wheels").glob("*.whl"))])
        by_name = {wheel.name: wheel for wheel in wheels}
        for artifact in artifacts:
            found = by_name.get(artifact.name)
            if found is None or found.version != artifact.version:
                raise ResolveError(f"{artifact.name!r} was not downloaded", reason=artifact.name)
            if expected[artifact.name] and found.sha256 not in expected[artifact.name]:
                raise _hash_mismatch(artifact.name)
        self._check_plugins(wheels, {w.name for w in wanted})
        self._check_whole(wheels)
        return self._described(act, wheels, [w.name for w in wanted], all(expected.get(w.name) for w in wanted))

    async def _resolve(
        self, act: Act, wanted: Sequence[PluginRequirement], resolver: Resolver, folder: Path, progress: Progress
    ) -> list[Artifact]:
        pins = environment.kernel_pins(self._installed)
        names = {w.name for w in wanted}
        keep = {n: d.version for n, d in self._installed.items() if d.plugin_ids and n not in names}
        texts = [str(w) for w in wanted]
        # Looked at alone first: pip follows an address among a package's needs, and builds what it finds there.
        for path in await resolver.fetch_alone(texts, folder / "wheels"):
            alone = await asyncio.to_thread(read_wheel, path)
            _refuse_direct(alone.name, direct_references(alone.requires))
        if act == "restore":
            locked = {p.name: p.version for p in self._lock.packages if p.name not in self._installed}
            try:
                return await resolver.resolve(texts, pins=locked | pins, keep=keep)
            except ResolveError as error:
                if error.code not in {"plugin_conflict", "plugin_not_in_index"}:
                    raise
                progress.say("lock_packages_moved")
        return await resolver.resolve(texts, pins=pins, keep=keep)

    def _check_artifact(self, artifact: Artifact, wanted: set[str]) -> None:
        _refuse_direct(artifact.name, direct_references(artifact.requires) or [artifact.url] * artifact.direct)
        self.policy.check(artifact.name, dependency=artifact.name not in wanted)
        if artifact.name in environment.kernel_pins(self._installed):
            raise Refused(
                f"It would move {artifact.name!r}, which Skald itself needs.",
                code="plugin_is_kernel",
                name=artifact.name,
            )
        there = self._installed.get(artifact.name)
        if there is not None and there.editable:
            raise _editable(there)
        entry = self._index.entries.get(artifact.name)
        if entry is not None and not entry.is_good(artifact.version):
            raise Refused(
                f"{artifact.name!r} {artifact.version} is known to be bad; use {entry.min_good_version} or newer.",
                code="plugin_too_old",
                name=artifact.name,
                version=artifact.version,
                minimum=entry.min_good_version,
            )

    def _expected_hashes(self, artifact: Artifact) -> frozenset[str]:
        """Hashes of which a wheel must have one: the index's, else the lock's. Empty: nobody published any."""
        entry = self._index.entries.get(artifact.name)
        published = entry.hashes_of(artifact.version) if entry is not None else frozenset()
        if published:
            return published
        locked = self._lock.hash_of(artifact.name, artifact.version)
        return frozenset({locked}) if locked else frozenset()

    def _check_plugins(self, wheels: Sequence[Wheel], wanted: set[str]) -> None:
        taken = {i: d.name for d in self._installed.values() for i in d.plugin_ids}
        for wheel in wheels:
            if wheel.name in wanted and not wheel.plugins:
                raise BadWheel(wheel.name, "it is no Skald plugin: it has no entry point for one", code="not_a_plugin")
            for plugin in wheel.plugins:
                self.policy.check(wheel.name)
                if taken.get(plugin.id, wheel.name) != wheel.name:
                    raise Conflict(
                        f"{wheel.name!r} calls itself {plugin.id!r}, as {taken[plugin.id]!r} does; uninstall that first.",
                        code="plugin_id_taken",
                        name=wheel.name,
                        other=taken[plugin.id],
                    )
                if not plugin.manifest.accepts(self._api):
                    raise Conflict(
                        f"{wheel.name!r} {wheel.version} is made for kernel API {plugin.manifest.api}; this is {self._api}.",
                        code="plugin_incompatible",
                        name=wheel.name,
                        version=wheel.version,
                        api=plugin.manifest.api,
                        here=self._api,
                    )

    def _check_whole(self, wheels: Sequence[Wheel]) -> None:
        """Nothing that works now may lose what it needs."""
        after = dict(self._installed)
        for wheel in wheels:
            after[wheel.name] = Installed(wheel.name, wheel.version, wheel.path, wheel.requires)
        broken = environment.broken_by(self._installed, after)
        if broken:
            first = broken[0]
            raise ResolveError(
                f"it does not fit to what is installed: {first.name!r} needs {first.requirement!r}. Nothing was changed.",
                code="plugin_conflict",
                reason=f"{first.name} needs {first.requirement}",
            )

    def _described(self, act: Act, wheels: Sequence[Wheel], requested: list[str], hashes: bool) -> Plan:
        changes = [
            Change(w.name, self._installed[w.name].version if w.name in self._installed else None, w.version)
            for w in wheels
        ]
        moved = [self._installed[c.name] for c in changes if c.from_ is not None]
        managed = {p.name for p in self._lock.packages}
        after = dict(self._installed)
        for wheel in wheels:
            after[wheel.name] = Installed(
                wheel.name, wheel.version, wheel.path, wheel.requires, plugin_ids=tuple(p.id for p in wheel.plugins)
            )
        gone = orphans(after, managed)
        changes += [Change(name, self._installed[name].version, None) for name in gone if name in self._installed]
        new = {p.id: p.manifest for w in wheels for p in w.plugins}
        old = {i: m for d in moved for i in d.plugin_ids if (m := installed_manifest(d)) is not None}
        goes = [d.name for d in moved] + [name for name in gone if name in self._installed]
        warnings = []
        if not hashes:
            warnings.append(Message("install.warning_no_hash"))
        for wheel in wheels:
            if wheel.plugins and wheel.name not in requested:
                warnings.append(Message("install.warning_brings_plugin", {"name": wheel.name}))
            entry = self._index.entries.get(wheel.name)
            if wheel.name in requested and self._index.source and (entry is None or not entry.verified):
                warnings.append(Message("install.warning_not_verified", {"name": wheel.name}))
        return Plan(
            act=act,
            changes=sorted(changes, key=lambda c: (c.name not in requested, c.name)),
            hashes=hashes,
            capabilities=_capabilities(old.values(), new.values()),
            contributes=_contributions(old.values(), new.values()),
            restart_needed=any(self._imported(self._installed[name].modules()) for name in goes),
            warnings=warnings,
            wheels=[
                PlannedWheel(w.name, w.version, w.sha256, w.path.name, ",".join(p.id for p in w.plugins))
                for w in wheels
            ],
            goes=goes,
            plugins=sorted(new),
            requested=requested,
            fingerprint=environment.fingerprint(self._installed),
            made_at=time.time(),
        )

    # -- uninstall -------------------------------------------------------------------------------------------------

    def removal(self, plugin_id: str) -> Plan:
        """What uninstalling takes away: the distribution, and packages that came with plugins and nobody needs any more.

        Raises NotFound, and Conflict when something else needs it.
        """
        dist = self.distribution_of(plugin_id)
        if dist.editable:
            raise _editable(dist)
        if dist.name in environment.protected_names(self._installed):
            raise Refused(f"{dist.name!r} belongs to Skald itself.", code="plugin_is_kernel", name=dist.name)
        after = {n: d for n, d in self._installed.items() if n != dist.name}
        users = sorted(
            other.name
            for other in after.values()
            for need in environment.requirements_of(other.requires)
            if str(canonicalize_name(need.name)) == dist.name
        )
        if users:
            raise Conflict(
                f"{', '.join(map(repr, users))} needs {dist.name!r}; uninstall that first.",
                code="plugin_needed",
                name=dist.name,
                users=", ".join(users),
            )
        gone = [dist.name, *orphans(after, {p.name for p in self._lock.packages})]
        manifest = installed_manifest(dist)
        old = [manifest] if manifest is not None else []
        warnings = [Message("install.warning_data_kept")]
        if dist.name in self._bundled:
            warnings.append(Message("install.warning_bundled", {"name": dist.name}))
        return Plan(
            act="uninstall",
            changes=[Change(name, self._installed[name].version, None) for name in gone],
            capabilities=_capabilities(old, []),
            contributes=_contributions(old, []),
            restart_needed=any(self._imported(self._installed[name].modules()) for name in gone),
            warnings=warnings,
            goes=gone,
            plugins=list(dist.plugin_ids),
            requested=[dist.name],
            fingerprint=environment.fingerprint(self._installed),
            made_at=time.time(),
        )


def orphans(after: Mapping[str, Installed], managed: Iterable[str]) -> list[str]:
    """Of the packages that came with plugins: those that nothing of ``after`` needs any more, however indirectly."""
    candidates = {name for name in managed if name in after and not after[name].plugin_ids}
    needed = set(after) - candidates
    queue = list(needed)
    while queue:
        for requirement in environment.requirements_of(after[queue.pop()].requires):
            name = str(canonicalize_name(requirement.name))
            if name in after and name not in needed:
                needed.add(name)
                queue.append(name)
    return sorted(set(after) - needed)


def installed_manifest(dist: Installed) -> Manifest | None:
    """The manifest of an installed plugin, read from its files; None when it has none that can be read."""
    try:
        path = next((p for p in dist.files() if p.name == "skald-plugin.toml"), None)
        return read_manifest(path) if path is not None else None
    except (LookupError, ManifestError):
        return None


def _capabilities(old: Iterable[Manifest], new: Iterable[Manifest]) -> Difference:
    before = {c for m in old for c in m.capabilities}
    after = {c for m in new for c in m.capabilities}
    return Difference(sorted(after - before), sorted(before - after))


def _contributions(old: Iterable[Manifest], new: Iterable[Manifest]) -> Contributions:
    before, after = [m.contributes for m in old], [m.contributes for m in new]
    return Contributions(_more(after, before), _more(before, after))


def _more(these: Iterable[Contributes], than: Iterable[Contributes]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for kind in Contributes.__struct_fields__:
        names = _named(these, kind) - _named(than, kind)
        if names:
            found[kind] = sorted(names)
    return found


def _named(these: Iterable[Contributes], kind: str) -> set[str]:
    """What manifests name under a kind; ``routes`` is only yes or no and names nothing."""
    lists = [value for c in these if isinstance(value := getattr(c, kind), list)]
    return {name for names in lists for name in names}


def _refuse_direct(name: str, addresses: Sequence[str]) -> None:
    if addresses:
        what = addresses[0][:120]
        raise ResolveError(
            f"{name!r} wants a package from an address of its own ({what!r}); only the package index is used.",
            code="plugin_direct_reference",
            name=name,
            reason=what,
        )


def _hash_mismatch(name: str) -> ResolveError:
    return ResolveError(
        f"the file of {name!r} has another hash than the one published for it; nothing was changed. It may have been "
        "tampered with: tell whoever publishes it.",
        code="plugin_hash_mismatch",
        name=name,
        reason="",
    )


def _editable(dist: Installed) -> Conflict:
    return Conflict(
        f"{dist.name!r} is installed from a folder for development; install and remove it with pip.",
        code="plugin_editable",
        name=dist.name,
    )


def advice_command(plan: Plan) -> str | None:
    """What a person runs by hand to carry out a plan, every package named with its version."""
    python = f"{sys.executable} -m pip"
    comes = [f"{c.name}=={c.to}" for c in plan.changes if c.to is not None]
    if comes:
        return f"{python} install --only-binary :all: {' '.join(comes)}"
    goes = [c.name for c in plan.changes if c.to is None]
    return f"{python} uninstall --yes {' '.join(goes)}" if goes else None
