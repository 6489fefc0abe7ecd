"""What may be asked for, and what may not, in every disguise."""

import pytest

from skald_core.plugins.install.requirement import BadRequirement, Policy, Refused, parse_requirement

POLICY = Policy(block=frozenset({"bad-plugin"}), protected=frozenset({"skald-core", "msgspec"}))


@pytest.mark.parametrize(
    ("text", "name", "versions"),
    [
        ("weather", "weather", ""),
        ("Skald_Plugin.Weather", "skald-plugin-weather", ""),
        ("weather==1.0", "weather", "==1.0"),
        ("weather >= 1, < 2", "weather", "<2,>=1"),
        ("weather~=1.2", "weather", "~=1.2"),
        ("weather==1.*", "weather", "==1.*"),
        ("weather!=1!2.0+local", "weather", "!=1!2.0+local"),
    ],
)
def test_a_name_with_versions_is_understood(text: str, name: str, versions: str) -> None:
    """The name comes out in its canonical form, the versions as one set."""
    wanted = parse_requirement(text, POLICY)
    assert (wanted.name, wanted.versions) == (name, versions)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "weather ",
        " weather",
        "weather\n",
        "weather\tx",
        "weather\x00",
        "weather\u200b",
        "weather\u00a0",
        "wea\u0442her",
        "weather  ==1",
        "weather==",
        "weather===1.0",
        "weather (>=1)",
        "weather[extra]",
        "weather; python_version > '3'",
        "weather @ https://example.org/w.whl",
        "weather@https://example.org/w.whl",
        "https://example.org/w.whl",
        "git+https://example.org/w",
        "file:///tmp/w.whl",
        "./weather",
        "../weather",
        "/tmp/weather",
        "weather.whl/",
        "-e .",
        "-rrequirements.txt",
        "--index-url=https://example.org",
        "weather --index-url=https://example.org",
        "weather==1.0 --hash=sha256:00",
        "weather>=1,-rfile",
        "weather other",
        "weather>1 2",
        "weather,other",
        "weather==1.0\nother",
        "x" * 201,
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    """Addresses, paths, options, extras, markers, control characters and odd white space never reach the resolver."""
    with pytest.raises(BadRequirement):
        parse_requirement(text, POLICY)


@pytest.mark.parametrize("text", ["bad-plugin", "Bad.Plugin", "BAD_plugin==1", "bad--plugin", "bad-_.plugin"])
def test_a_blocked_name_is_blocked_under_every_spelling(text: str) -> None:
    """Names are compared as PEP 503 says, so no other spelling walks around the list."""
    with pytest.raises(Refused) as caught:
        parse_requirement(text, POLICY)
    assert caught.value.code == "plugin_blocked"


@pytest.mark.parametrize("text", ["skald-core", "Skald.Core", "skald_core>=9", "MsgSpec"])
def test_the_kernel_and_its_needs_are_no_plugins(text: str) -> None:
    """Nobody installs another kernel, or another version of what it stands on, as a plugin."""
    with pytest.raises(Refused) as caught:
        parse_requirement(text, POLICY)
    assert caught.value.code == "plugin_is_kernel"


def test_an_allow_list_keeps_everything_else_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a list only its names may be asked for, or the index's where it says so; dependencies need not be on it."""
    monkeypatch.setenv("SKALD_PLUGIN_ALLOW", "Weather_Plugin, @index")
    monkeypatch.setenv("SKALD_PLUGIN_BLOCK", "evil.dep")
    policy = Policy.from_environment(index_names={"listed"}, index_blocked={"pulled": "it leaked passwords"})
    assert parse_requirement("weather-plugin", policy).name == "weather-plugin"
    assert parse_requirement("Listed", policy).name == "listed"
    with pytest.raises(Refused, match="SKALD_PLUGIN_ALLOW"):
        parse_requirement("other", policy)
    policy.check("some-library", dependency=True)
    with pytest.raises(Refused, match="SKALD_PLUGIN_BLOCK"):
        policy.check("Evil-Dep", dependency=True)
    with pytest.raises(Refused, match="it leaked passwords"):
        policy.check("pulled", dependency=True)
