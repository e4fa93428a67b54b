"""A session's files."""

from __future__ import annotations

import io
import os
import pathlib
import pickle
import resource

import pytest

import sandfork
from sandfork import AsyncSandbox, Sandbox
from sandfork._exceptions import refused

from .support.descriptors import assert_closed_since, opened
from .support.fake import FakeSupervisor


@pytest.mark.parametrize(
    ("data", "content"),
    [
        (b"\0\xff", b"\0\xff"),
        (bytearray(b"a"), b"a"),
        (memoryview(b"abcd")[::1], b"abcd"),
        ("\u20ac\n", b"\xe2\x82\xac\n"),
        (io.BytesIO(b"x" * (3 << 20)), b"x" * (3 << 20)),
        (io.StringIO("t\u20ac"), b"t\xe2\x82\xac"),
        ("", b""),
    ],
)
def test_written_files_are_read_back(fake: FakeSupervisor, data: object, content: bytes) -> None:
    with Sandbox() as sbx:
        before = opened()
        sbx.files.write("file", data)
        assert sbx.files.read("file") == sbx.files.read_bytes("file") == content
        assert_closed_since(before)


def test_missing_descriptors_are_named_in_the_error(fake: FakeSupervisor) -> None:
    def read(session, request):
        free = os.dup(file.fileno())
        os.close(free)
        resource.setrlimit(resource.RLIMIT_NOFILE, (free, limits[1]))
        session.wire.send({"kind": "file", "id": request.header["id"], "size": 1}, b"", (file.fileno(),))

    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    fake.on("file", read)
    with open(__file__) as file, Sandbox() as sbx:
        sbx.run("x = 1")
        try:
            with pytest.raises(sandfork.SystemFailure, match="RLIMIT_NOFILE"):
                sbx.files.read("f")
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        assert sbx.run("x").value == 1


def test_text_and_appending(fake: FakeSupervisor) -> None:
    with Sandbox() as sbx:
        sbx.files.write(pathlib.PurePosixPath("file"), "a\n")
        sbx.files.write("file", "b\xe9", append=True)
        assert sbx.files.read_text("file") == "a\nb\xe9"
        sbx.files.write("latin", b"\xe9")
        assert sbx.files.read_text("latin", encoding="latin-1") == "\xe9"
        with pytest.raises(UnicodeDecodeError):
            sbx.files.read_text("latin")
        assert sbx.files.read_text("latin", errors="replace") == "\ufffd"


def test_invalid_data_creates_no_file(fake: FakeSupervisor) -> None:
    with Sandbox() as sbx:
        with pytest.raises(sandfork.RequestError, match="of type dict: give bytes, text or an open file"):
            sbx.files.write("file", {"x": 1})  # type: ignore[arg-type]
        assert not sbx.files.exists("file")


def test_directories(fake: FakeSupervisor) -> None:
    with Sandbox() as sbx:
        sbx.files.make_dir("a/b", parents=True)
        sbx.files.write("a/b/c", b"123")
        (entry,) = sbx.files.list("a/b")
        assert (entry.name, entry.type, entry.size) == ("c", "file", 3)
        assert entry.modified > 1e9
        assert sbx.files.stat("a").type == "dir"
        assert [entry.name for entry in sbx.files.list()] == ["a"]
        assert sbx.files.exists("a/b/c")
        assert not sbx.files.exists("a/x")
        assert not sbx.files.exists("a/b/c/d")
        sbx.files.remove("a/b/c")
        # Any true value is accepted for `True`.
        sbx.files.remove("a", recursive=1)
        assert fake.session.heard[-1]["recursive"] is True
        assert sbx.files.list() == []


def test_errors_are_os_errors_with_the_guests_path(fake: FakeSupervisor) -> None:
    with Sandbox() as sbx:
        with pytest.raises(sandfork.FileNotFound) as caught:
            sbx.files.read("missing")
        assert isinstance(caught.value, FileNotFoundError)
        assert (caught.value.errno, caught.value.filename) == (2, "missing")
        assert str(caught.value) == "`missing` cannot be used: No such file or directory"
        sbx.files.make_dir("d")
        with pytest.raises(sandfork.FileError) as refused:
            sbx.files.make_dir("d")
        assert refused.value.errno == 17
        assert not isinstance(refused.value, FileNotFoundError)
        assert sbx.run("1").value == 1


def test_an_error_names_its_path_once() -> None:
    said = "`a` cannot be read: it does not exist"
    error = refused({"kind": "error", "error": "file", "message": said, "errno": 2}, "a")
    assert (str(error), type(error)) == (said, sandfork.FileNotFound)
    assert str(pickle.loads(pickle.dumps(error))) == said
    # The path is added unless the message starts with it, wherever else the guest's file name occurs.
    local = sandfork.FileError(28, "No space left beside `a`", "a")
    assert str(local) == "a: No space left beside `a`"
    assert str(sandfork.FileError(28, "No space left on device", "a")) == "a: No space left on device"


def test_a_file_that_is_too_large_is_not_read(fake: FakeSupervisor, tmp_path: pathlib.Path) -> None:
    with Sandbox() as sbx:
        sbx.files.write("file", b"12345")
        assert sbx.files.read("file", max_bytes=5) == b"12345"
        with pytest.raises(sandfork.FileTooLarge, match="file: 5 bytes, more than max_bytes=4"):
            sbx.files.read("file", max_bytes=4)
        with pytest.raises(sandfork.FileTooLarge):
            sbx.files.download("file", tmp_path / "copy", max_bytes=4)
        assert list(tmp_path.iterdir()) == []


def test_a_file_that_grows_while_it_is_read_is_too_large(fake: FakeSupervisor) -> None:
    def lie(session, request):
        reader = os.open("/dev/zero", os.O_RDONLY)
        session.wire.send({"kind": "file", "id": request.header["id"], "size": 3}, b"", (reader,))
        os.close(reader)

    fake.on("file", lie)
    with Sandbox() as sbx, pytest.raises(sandfork.FileTooLarge, match="grows while it is read"):
        sbx.files.read("file", max_bytes=3 << 20)


def test_a_full_disk_is_the_guests_error(fake: FakeSupervisor) -> None:
    def full(session, request):
        writer = os.open("/dev/full", os.O_WRONLY)
        session.wire.send({"kind": "file", "id": request.header["id"]}, b"", (writer,))
        os.close(writer)

    fake.on("file", full)
    with Sandbox() as sbx, pytest.raises(sandfork.FileError, match="file: No space left on device"):
        sbx.files.write("file", b"1")


def test_reply_without_its_file_is_a_protocol_error(fake: FakeSupervisor) -> None:
    fake.on("file", lambda session, request: session.wire.send({"kind": "file", "id": request.header["id"]}))
    with Sandbox() as sbx, pytest.raises(sandfork.ProtocolError, match="announced a file and passed none"):
        sbx.files.read("file")


def test_failing_input_file_raises_in_the_caller(fake: FakeSupervisor) -> None:
    class Broken(io.RawIOBase):
        def read(self, size: int = -1) -> bytes:
            raise OSError(5, "broken")

    class Odd:
        def read(self, size: int) -> int:
            return 3

    with Sandbox() as sbx:
        with pytest.raises(OSError, match="broken") as caught:
            sbx.files.write("file", Broken())
        assert not isinstance(caught.value, sandfork.SandforkError)
        with pytest.raises(sandfork.RequestError, match="gave a int"):
            sbx.files.write("file", Odd())


def test_files_are_copied_to_and_from_the_host(fake: FakeSupervisor, tmp_path: pathlib.Path) -> None:
    (tmp_path / "local").write_bytes(b"x" * (2 << 20))
    (tmp_path / "copy").write_bytes(b"old")
    with Sandbox() as sbx:
        sbx.files.upload(tmp_path / "local", "up")
        sbx.files.download("up", tmp_path / "copy")
        assert (tmp_path / "copy").read_bytes() == b"x" * (2 << 20)
        with pytest.raises(FileNotFoundError):
            sbx.files.upload(tmp_path / "missing", "up")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy", "local"]


async def test_async_files_behave_the_same(fake: FakeSupervisor, tmp_path: pathlib.Path) -> None:
    (tmp_path / "local").write_bytes(b"local")
    async with AsyncSandbox() as sbx:
        files = sbx.files
        await files.make_dir("d")
        await files.write("d/f", "text")
        assert await files.read("d/f") == await files.read_bytes("d/f") == b"text"
        assert await files.read_text("d/f") == "text"
        assert [entry.name for entry in await files.list("d")] == ["f"]
        assert (await files.stat("d/f")).size == 4
        assert await files.exists("d/f")
        assert not await files.exists("x")
        await files.upload(tmp_path / "local", "up")
        await files.download("up", tmp_path / "copy")
        assert (tmp_path / "copy").read_bytes() == b"local"
        await files.remove("d", recursive=True)
        with pytest.raises(sandfork.FileNotFound):
            await files.read("d/f")
        with pytest.raises(sandfork.FileTooLarge):
            await files.read("up", max_bytes=1)
