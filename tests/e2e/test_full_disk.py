"""A full disk: one clear sentence, nothing stored is lost, and everything works again once there is room."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.fake_llm import ThreadedLlm
from tests.support.live import Live
from tests.support.server import ServerProcess, add_fake_model, messages, new_conversation, send

MOUNT_MB = 12


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, as small as a data directory can be. Mounting needs root; elsewhere this is skipped."""
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={MOUNT_MB}m", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("a small file system can only be mounted by root")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(folder: Path) -> Path:
    """Use every byte that is left."""
    ballast = folder / "ballast"
    with ballast.open("wb", buffering=0) as handle:
        for size in (1 << 20, 1 << 12, 1):
            try:
                while True:
                    handle.write(os.urandom(size))
            except OSError:
                continue
    return ballast


def test_a_full_disk_is_told_and_survived(small_disk: Path, llm: ThreadedLlm) -> None:
    """A message that cannot be stored is refused with the remedy; after freeing space the same message goes through once."""
    with ServerProcess(small_disk / "data") as server:
        client = server.first_user()
        add_fake_model(client, llm.url)
        conversation = new_conversation(client)
        live = Live(client, conversation)
        live.until("snapshot")
        send(client, conversation, "before", client_id="one")
        live.until("turn_finished")
        ballast = fill(small_disk)
        body = {"client_id": "two", "content": "x" * 200_000}
        refused = client.post(f"/api/conversations/{conversation}/messages", json=body)
        assert refused.status_code == 507, refused.text
        assert refused.json()["code"] == "disk_full"
        assert "Free some space" in refused.json()["detail"]
        assert [m["content"] for m in messages(client, conversation)][:1] == ["before"]
        ballast.unlink()
        client.post(f"/api/conversations/{conversation}/messages", json=body).raise_for_status()
        live.until("turn_finished")
        assert sum(m["content"].startswith("xxx") for m in messages(client, conversation)) == 1
        live.close()
        client.close()
        server.stop()
        server.start()
        again = server.sign_in()
        assert messages(again, conversation)[0]["content"] == "before"
        again.close()
