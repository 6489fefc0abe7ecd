"""One environment to install into for all of these tests: making it takes longer than most of them."""

from pathlib import Path

import pytest

from tests.support.authors import AuthorEnvironment


@pytest.fixture(scope="session")
def environment(tmp_path_factory: pytest.TempPathFactory) -> AuthorEnvironment:
    return AuthorEnvironment(tmp_path_factory.mktemp("author") / "venv")


@pytest.fixture
def workshop(tmp_path: Path) -> Path:
    """An empty folder to make projects in."""
    folder = tmp_path / "workshop"
    folder.mkdir()
    return folder
