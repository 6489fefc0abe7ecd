"""Texts, manifest and page agree with the code."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import skald_approval

PACKAGE = Path(skald_approval.__file__).parent


def test_every_text_exists_in_every_language_with_the_same_placeholders() -> None:
    """No page or card shows a raw key, and no translation loses a value."""
    bundles = {p.stem: json.loads(p.read_text(encoding="utf-8")) for p in (PACKAGE / "i18n").glob("*.json")}
    assert set(bundles) == {"en", "it", "fr"}
    for key, text in bundles["en"].items():
        for locale, texts in bundles.items():
            assert texts[key].strip(), (locale, key)
            assert re.findall(r"\{\w+\}", texts[key]) == re.findall(r"\{\w+\}", text), (locale, key)
    assert set(bundles["en"]) == set(bundles["it"]) == set(bundles["fr"])


def test_every_text_that_is_used_exists_and_the_other_way_round() -> None:
    """Keys in the code and in the page are those of the bundles."""
    known = set(json.loads((PACKAGE / "i18n" / "en.json").read_text(encoding="utf-8")))
    sources = [p.read_text(encoding="utf-8") for p in (*PACKAGE.glob("*.py"), *(PACKAGE / "web").glob("*.js"))]
    used = {key for key in known if any(re.search(rf"""["'`.}}]{re.escape(key)}["'`]""", text) for text in sources)}
    # Some are put together from a value that has few forms.
    used |= {key for key in known if re.match(r"(action|try|reason|scope)\.|rules\.class\.", key)}
    assert used == known
    page = (PACKAGE / "web" / "rules.js").read_text(encoding="utf-8")
    asked = set(re.findall(r"""\bt\(["']([\w.@]+)["']""", page))
    assert asked <= known


def test_the_manifest_names_what_the_code_brings(bench: Any) -> None:
    """The catalog's promise holds."""
    manifest = tomllib.loads((PACKAGE / "skald-plugin.toml").read_text(encoding="utf-8"))
    hooks = {name for name in dir(skald_approval) if hasattr(getattr(skald_approval, name), "skald_impl")}
    assert set(manifest["contributes"]["hooks"]) == hooks
    assert manifest["contributes"]["pages"] == [page.page_id for page in skald_approval.skald_web_pages()]
    assert manifest["contributes"]["routes"] is bool(skald_approval.skald_routes(bench.ctx))
    for page in skald_approval.skald_web_pages():
        assert (PACKAGE / page.entry).is_file()
