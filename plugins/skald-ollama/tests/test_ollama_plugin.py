"""The plugin as the kernel meets it: manifest, hooks, texts, and what importing it costs."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import skald_ollama
from skald_core.api import API_VERSION
from skald_core.testing import local_plugin
from skald_ollama.kind import Ollama

PACKAGE = Path(skald_ollama.__file__).parent
LOCALES = ("en", "it", "fr")


def texts(locale: str) -> dict[str, str]:
    return dict(json.loads((PACKAGE / "i18n" / f"{locale}.json").read_text(encoding="utf-8")))


def test_the_manifest_tells_the_truth() -> None:
    """What it says is contributed is what the hooks return."""
    manifest = local_plugin("skald_ollama").manifest
    assert manifest is not None
    assert manifest.id == "ollama"
    assert manifest.accepts(API_VERSION)
    assert manifest.contributes.providers == [kind.id for kind in skald_ollama.skald_llm_providers()]
    hooks = [name for name in vars(skald_ollama) if name.startswith("skald_") and callable(getattr(skald_ollama, name))]
    assert manifest.contributes.hooks == sorted(hooks)
    for locale in ("it", "fr"):
        assert manifest.localized(locale) != (manifest.title, manifest.summary)


def test_texts_are_complete() -> None:
    """Every key in every language, and every key the provider type names."""
    for locale in LOCALES:
        assert texts(locale).keys() == texts("en").keys()
        assert all(text.strip() for text in texts(locale).values())
    kind = Ollama()
    named = [kind.summary, *(text for field in kind.fields for text in (field.label, field.help))]
    used = {key.removeprefix("plugin.ollama.") for key in named}
    assert all(key.startswith("plugin.ollama.") for key in named)
    assert used == set(texts("en"))


def test_importing_loads_nothing_heavy() -> None:
    """The module brings its hooks and nothing else: no HTTP client, no table, not even its own parts."""
    code = (
        "import sys, skald_core.api; before = set(sys.modules); import skald_ollama;"
        "print(sorted(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['skald_ollama']"


def test_what_is_loaded_after_the_start() -> None:
    """The first message finds everything in place, and loading it warns of nothing."""
    code = (
        "import sys, skald_ollama; skald_ollama._load();"
        "print('httpx' in sys.modules, 'skald_ollama.provider' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True True"


def test_the_readmes_settings_are_json() -> None:
    """What admins copy can be pasted."""
    text = (PACKAGE.parent.parent / "README.md").read_text(encoding="utf-8")
    found = re.findall(r"```json\n(.*?)```", text, re.DOTALL)
    assert found
    assert all(json.loads(settings) for settings in found)


def test_only_the_public_surface_is_imported() -> None:
    """A plugin that reached into the kernel would break with it."""
    pattern = re.compile(r"^\s*(?:from|import)\s+(skald_core[\w.]*)(?:\s+import\s+(.*))?", re.MULTILINE)
    for path in PACKAGE.rglob("*.py"):
        for module, names in pattern.findall(path.read_text(encoding="utf-8")):
            assert module == "skald_core.api" or (module == "skald_core" and names.startswith("api")), (
                f"{path}: {module}"
            )
