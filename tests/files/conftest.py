"""A home on a real disk, and a FilesError catcher that also checks what every message must respect."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from skald_core.files.userfs import FilesError, UserFs


@pytest.fixture
def home(tmp_path: Path) -> Path:
    path = tmp_path / "host-secret-name" / "home"
    path.mkdir(parents=True)
    return path


@pytest.fixture
def fs(home: Path) -> UserFs:
    return UserFs(home)


Refused = Callable[[Awaitable[Any]], Awaitable[FilesError]]


@pytest.fixture
def refused() -> Refused:
    """Await something that must fail with a FilesError; every message is checked for host paths and a remedy."""

    async def check(work: Awaitable[Any]) -> FilesError:
        with pytest.raises(FilesError) as caught:
            await work
        text = str(caught.value)
        assert "host-secret-name" not in text
        assert caught.value.remedy
        assert text.endswith(caught.value.remedy)
        assert caught.value.__cause__ is None  # a chained OSError would carry the host's path into a log
        return caught.value

    return check
