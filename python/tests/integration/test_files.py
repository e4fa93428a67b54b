"""Files of a session, written from outside."""

from __future__ import annotations

import io
import pathlib

import pytest

from sandfork import AsyncSandbox, FileError, Sandbox

SMALL = {"filesystem": {"work_size": "1MiB"}}
TOO_LARGE = 3 << 20


def test_file_is_unchanged_if_the_new_data_does_not_fit(tmp_path: pathlib.Path) -> None:
    local = tmp_path / "large"
    local.write_bytes(bytes(TOO_LARGE))
    with Sandbox(SMALL) as sbx:
        sbx.files.write("f", "before")
        for act in (
            lambda: sbx.files.write("f", bytes(TOO_LARGE)),
            lambda: sbx.files.write("f", memoryview(bytes(TOO_LARGE))),
            lambda: sbx.files.write("f", "é" * (TOO_LARGE // 2)),
            lambda: sbx.files.upload(local, "f"),
            lambda: sbx.files.write("new", bytes(TOO_LARGE)),
        ):
            with pytest.raises(FileError, match=r"No space left on device: filesystem\.work_size"):
                act()
            assert sbx.files.read("f") == b"before"
        # The failed write has freed its space for later files.
        sbx.files.write("other", bytes(900_000))


def test_files_and_commands_hold_their_session() -> None:
    Sandbox().files.write("a", "b")
    assert Sandbox().commands.run("echo 1").stdout == "1\n"


async def test_files_and_commands_hold_their_async_session() -> None:
    await AsyncSandbox().files.write("a", "b")
    assert (await AsyncSandbox().commands.run("echo 1")).stdout == "1\n"


def test_a_file_is_replaced_by_data_of_any_length(sbx: Sandbox) -> None:
    for data in (b"first", b"a longer one", b"short", b"", bytes(100_000)):
        sbx.files.write("f", data)
        assert sbx.files.read("f") == data
        sbx.files.write("f", io.BytesIO(b"of a file"))
        assert sbx.files.read("f") == b"of a file"
    sbx.files.write("f", "!", append=True)
    assert sbx.files.read("f") == b"of a file!"
