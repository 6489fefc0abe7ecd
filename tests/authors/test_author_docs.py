"""What the pages for authors promise is there, and nothing is missing from them."""

import importlib.util
import inspect
import re
import sys
import types
from collections.abc import Iterator
from pathlib import Path

import pytest

from skald_core import api, hookspecs, testing
from skald_core.plugins.context import PluginContext

ROOT = Path(__file__).parent.parent.parent
PAGES = ROOT / "docs" / "plugins"


def contract() -> types.ModuleType:
    spec = importlib.util.spec_from_file_location("contract", ROOT / "scripts" / "contract.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


HOOKS = [name for name, value in vars(hookspecs).items() if name.startswith("skald_") and callable(value)]
SIGNATURES = dict(zip(HOOKS, contract().hooks(), strict=True))


def page(name: str) -> str:
    return (PAGES / name).read_text(encoding="utf-8")


def sources() -> Iterator[Path]:
    for folder in (ROOT / "tests", *ROOT.glob("plugins/*/tests")):
        yield from folder.rglob("test_*.py")


TESTS = "\n".join(p.read_text(encoding="utf-8") for p in sources())


@pytest.mark.parametrize("hook", HOOKS)
def test_each_hook_has_a_section_with_its_exact_signature(hook: str) -> None:
    """In docs/plugins/hooks.md, with what a failure does and an example that uses it."""
    sections = re.split(r"^## ", page("hooks.md"), flags=re.MULTILINE)
    (section,) = [s for s in sections if s.startswith(f"{hook}\n")]
    assert f"```text\n{SIGNATURES[hook]}\n```" in section, f"the signature is now: {SIGNATURES[hook]}"
    assert "**Failure**" in section
    (example,) = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    assert f"def {hook}(" in example
    compile(example, hook, "exec")


@pytest.mark.parametrize("hook", HOOKS)
def test_each_hook_has_a_test_named_after_it(hook: str) -> None:
    """`test_<hook>…` in tests/ or in a plugin's own tests; `test_hook_<hook>` counts."""
    assert re.search(rf"^\s*(?:async )?def test_(?:hook_)?{hook}(?:_\w+)?\(", TESTS, re.MULTILINE), f"write test_{hook}"


@pytest.mark.parametrize("hook", HOOKS)
def test_each_hook_has_a_real_user(hook: str) -> None:
    """A bundled plugin or one of the strangers; a hook nobody needs is not shipped."""
    users = [
        path
        for pattern in ("plugins/*/src/*/__init__.py", "tests/strangers/*/src/*/__init__.py")
        for path in ROOT.glob(pattern)
        if re.search(rf"^@skald\.hookimpl.*\n(?:async )?def {hook}\(", path.read_text(encoding="utf-8"), re.MULTILINE)
    ]
    assert users, f"no plugin uses {hook}"


def test_no_section_is_about_a_hook_that_is_gone() -> None:
    """The page lists exactly what there is."""
    assert set(re.findall(r"^## (skald_\w+)$", page("hooks.md"), re.MULTILINE)) == set(HOOKS)


def test_every_public_name_is_explained() -> None:
    """Each name of skald_core.api is in one of the pages."""
    text = "\n".join(p.read_text(encoding="utf-8") for p in PAGES.glob("*.md"))
    missing = [name for name in api.__all__ if not re.search(rf"\b{name}\b", text)]
    assert missing == []


def test_everything_a_context_can_is_explained() -> None:
    """Each public member of PluginContext is in docs/plugins/context.md, and no other."""
    named = set(re.findall(r"`(?:await )?ctx\.(\w+)", page("context.md")))
    members = {name for name in vars(PluginContext) if not name.startswith("_")}
    attributes = set(
        re.findall(r"^\s+self\.([a-z]\w*)\s*[:=]", inspect.getsource(PluginContext.__init__), re.MULTILINE)
    )
    assert (members | attributes) - named == set()
    assert named - (members | attributes) == set()


def test_everything_for_tests_is_explained() -> None:
    """Each name of skald_core.testing, and every fixture, is in docs/plugins/testing.md."""
    names = [*testing.__all__, "skald_app", "skald_provider", "skald_clock", "skald_network"]
    missing = [n for n in names if not re.search(rf"\b{n}\b", page("testing.md"))]
    assert missing == ["NetworkRefused", "TestApp", "TestClient"], (
        "only the types of what fixtures give may be left out"
    )


@pytest.mark.parametrize("name", [p.name for p in sorted(PAGES.glob("*.md"))])
def test_python_blocks_are_python_and_links_lead_somewhere(name: str) -> None:
    """Every block compiles; every link to a page of ours, and to a section, exists."""
    text = page(name)
    for block in re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        compile(block, name, "exec")
    for target in re.findall(r"\]\(([^)]+)\)", text):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        file = (PAGES / (path or name)).resolve()
        assert file.is_file(), target
        if anchor:
            assert re.search(rf"^#+ {re.escape(anchor)}$", file.read_text(encoding="utf-8"), re.MULTILINE), target


@pytest.mark.parametrize("name", ["settings.md", "storage.md"])
def test_the_blocks_of_a_page_run(name: str) -> None:
    """In one namespace, in order."""
    namespace: dict[str, object] = {"__name__": f"page_{name.removesuffix('.md')}"}
    sys.modules[str(namespace["__name__"])] = types.ModuleType(str(namespace["__name__"]))
    for block in re.findall(r"^```python\n(.*?)^```", page(name), re.DOTALL | re.MULTILINE):
        exec(compile(block, name, "exec", dont_inherit=True), namespace)
    assert any(callable(v) and k.startswith("skald_") for k, v in namespace.items())
