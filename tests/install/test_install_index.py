"""The catalog index: read from a file or over https, kept, and never able to break the page."""

import json
from pathlib import Path

import pytest

from skald_core.plugins.install.catalog_index import CatalogIndex
from skald_core.plugins.install.requirement import PluginRequirement, Refused
from skald_core.testing import AppFactory

HASH = "a" * 64
INDEX = {
    "schema": 1,
    "title": "Reviewed",
    "updated_at": 1.0,
    "plugins": [
        {
            "name": "Skald_Plugin.One",
            "title": "One",
            "verified": True,
            "min_good_version": "1.1",
            "versions": [
                {"version": "1.0", "sha256": [HASH]},
                {"version": "1.2", "sha256": ["b" * 64], "api": ">=1,<2"},
                {"version": "2.0", "sha256": ["c" * 64], "api": ">=9"},
                {"version": "3.0rc1", "sha256": ["d" * 64]},
            ],
        },
        {"name": "skald-plugin-two", "blocked": "it sends files away"},
    ],
}


async def _no_fetch(url: str) -> bytes:
    raise AssertionError(f"fetched {url}")


async def test_an_index_file_is_read_and_read_again_when_it_changes(tmp_path: Path) -> None:
    """Entries are known by canonical name; an unchanged file gives the same entries object."""
    source = tmp_path / "index.json"
    source.write_text(json.dumps(INDEX))
    index = CatalogIndex(tmp_path, _no_fetch, str(source))
    first = await index.state()
    assert first.title == "Reviewed"
    assert set(first.entries) == {"skald-plugin-one", "skald-plugin-two"}
    assert first.blocked == {"skald-plugin-two": "it sends files away"}
    assert (await index.state()).entries is first.entries
    source.write_text(json.dumps({**INDEX, "title": "Newer"}))
    assert (await index.state()).title == "Newer"


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"not json",
        b"[]",
        b'{"schema": 2}',
        b'{"schema": 1, "plugins": [{"name": 7}]}',
        b'{"schema": 1, "plugins": [{"name": "x", "versions": [{"version": "no version"}]}]}',
        b'{"schema": 1, "plugins": [{"name": "x", "homepage": "javascript:alert(1)"}]}',
        b'{"schema": 1, "plugins": [{"name": "x", "versions": [{"version": "1", "sha256": ["short"]}]}]}',
    ],
)
async def test_a_broken_index_costs_a_line_of_text(tmp_path: Path, content: bytes) -> None:
    """The error is told and the last good copy serves on, also in the next process."""
    source = tmp_path / "index.json"
    source.write_text(json.dumps(INDEX))
    index = CatalogIndex(tmp_path, _no_fetch, str(source))
    await index.state()
    source.write_bytes(content)
    broken = await index.state()
    assert broken.error
    assert "skald-plugin-one" in broken.entries
    again = CatalogIndex(tmp_path, _no_fetch, str(source))
    assert "skald-plugin-one" in again.known().entries
    assert "skald-plugin-one" in (await again.state()).entries
    source.unlink()
    assert (await again.state()).error


async def test_an_index_of_another_source_is_not_mixed_up(tmp_path: Path) -> None:
    """The kept copy belongs to its address: who changes the address does not get the old one's plugins."""
    source = tmp_path / "index.json"
    source.write_text(json.dumps(INDEX))
    await CatalogIndex(tmp_path, _no_fetch, str(source)).state()
    other = await CatalogIndex(tmp_path, _no_fetch, str(tmp_path / "absent.json")).state()
    assert other.entries == {}
    assert other.error


async def test_a_remote_index_is_fetched_once_and_only_over_https(tmp_path: Path) -> None:
    """One request serves the page for a while; a failing server is not asked again at once; http is refused."""
    asked: list[str] = []

    async def fetch(url: str) -> bytes:
        asked.append(url)
        return json.dumps(INDEX).encode()

    index = CatalogIndex(tmp_path, fetch, "https://index.invalid/plugins.json")
    assert "skald-plugin-one" in (await index.state()).entries
    await index.state()
    assert len(asked) == 1

    async def fail(url: str) -> bytes:
        asked.append(url)
        raise OSError("no route")

    down = CatalogIndex(tmp_path, fail, "https://index.invalid/plugins.json")
    state = await down.state()
    await down.state()
    assert "no route" in state.error
    assert "skald-plugin-one" in state.entries
    assert len(asked) == 2
    plain = await CatalogIndex(tmp_path, fetch, "http://index.invalid/plugins.json").state()
    assert "https" in plain.error


async def test_without_an_index_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The default: an empty catalog without an error."""
    monkeypatch.delenv("SKALD_PLUGIN_INDEX", raising=False)
    state = await CatalogIndex(tmp_path, _no_fetch).state()
    assert (state.source, state.entries, state.error) == ("", {}, "")


async def test_only_reviewed_good_versions_for_this_kernel_are_chosen(tmp_path: Path) -> None:
    """The newest that was reviewed, is not below the lowest good one, and is made for this kernel API."""
    source = tmp_path / "index.json"
    source.write_text(json.dumps(INDEX))
    entry = (await CatalogIndex(tmp_path, _no_fetch, str(source)).state()).entries["skald-plugin-one"]
    assert entry.latest == "2.0"
    assert str(entry.choose(PluginRequirement("skald-plugin-one"), "1.0")) == "skald-plugin-one==1.2"
    assert entry.hashes_of("1.0") == {HASH}
    for versions in ("==1.0", ">=2", "==1.1"):
        with pytest.raises(Refused) as caught:
            entry.choose(PluginRequirement("skald-plugin-one", versions), "1.0")
        assert caught.value.code == "plugin_not_reviewed"


async def test_the_index_is_fetched_by_the_guarded_client(
    skald_app: AppFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An index address inside the own network is refused like any other; the page shows it and goes on."""
    monkeypatch.setenv("SKALD_PLUGIN_INDEX", "https://127.0.0.1:9/plugins.json")
    app = await skald_app()
    shown = await (await app.client()).get("/api/plugins/available")
    assert "not a public address" in shown["index"]["error"]
    assert shown["items"] == []


async def test_the_example_of_the_documentation_is_an_index(tmp_path: Path) -> None:
    """What docs/plugins/installing.md shows is read without an error."""
    page = Path(__file__).parents[2] / "docs" / "plugins" / "installing.md"
    (tmp_path / "index.json").write_text(page.read_text().partition("```json\n")[2].partition("```")[0])
    state = await CatalogIndex(tmp_path, _no_fetch, str(tmp_path / "index.json")).state()
    assert state.error == ""
    assert state.entries["skald-plugin-weather"].latest == "1.2"
