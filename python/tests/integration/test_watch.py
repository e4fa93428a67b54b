"""Directories of a session that are watched."""

from __future__ import annotations

import asyncio
import errno
import threading

import pytest

from sandfork import AsyncSandbox, FileError, FileEvent, FileNotFound, FileWatch, RequestError, Sandbox


def taken(watch: FileWatch, last: FileEvent) -> list[FileEvent]:
    """The events up to and including this one."""
    seen: list[FileEvent] = []
    for event in watch:
        seen.append(event)
        if event == last:
            return seen
    raise AssertionError(f"no {last} after {seen}: {watch.ended}")


def test_changes_are_reported_in_order(sbx: Sandbox) -> None:
    with sbx.files.watch() as watch:
        assert watch.events(0) == []
        with pytest.raises(RequestError, match="timeout is of type str: give seconds"):
            watch.events("1")  # type: ignore[arg-type]
        sbx.run("import os; open('a', 'w').write('é'); os.rename('a', 'b'); os.remove('b')")
        expected = [("create", "a"), ("write", "a"), ("rename", "a"), ("create", "b"), ("remove", "b")]
        assert taken(watch, FileEvent("remove", "b")) == expected
        sbx.files.write("by the host", "x")
        assert taken(watch, FileEvent("write", "by the host"))[0] == ("create", "by the host")
        sbx.files.make_dir("below")
        sbx.files.write("below/unseen", "x")
        sbx.run("os.chmod('by the host', 0o600)")
        assert taken(watch, FileEvent("chmod", "by the host"))[0] == ("create", "below")
        assert "watching" in repr(watch)
    assert (watch.ended, list(watch), watch.events()) == ("it was closed", [], [])


def test_events_arrive_while_a_cell_runs(sbx: Sandbox) -> None:
    seen: list[FileEvent] = []

    def on_event(event: FileEvent) -> None:
        # What is in a new directory may be reported twice.
        if event == ("create", "in/deep/made") and event not in seen:
            sbx.commands.run("touch go")
        seen.append(event)

    sbx.files.watch(recursive=True, on_event=on_event)
    code = "import os, time\nos.makedirs('in/deep')\nopen('in/deep/made', 'w')"
    assert sbx.run(code + "\nwhile not os.path.exists('go'): time.sleep(0.001)").ok
    assert ("create", "in") in seen


def test_slow_reader_is_told_about_lost_events(sbx: Sandbox) -> None:
    with sbx.files.watch() as watch:
        sbx.run("import os; os.mkdir('a')")
        code = "for n in range(50_000):\n    os.rename('a', 'b'); os.rename('b', 'a')"
        assert sbx.run(code).ok
        kept = taken(watch, FileEvent("overflow", "."))
        assert 1000 < len(kept) < 200_000


def test_a_watch_ends_with_its_session(sbx: Sandbox) -> None:
    watch = sbx.files.watch()
    waiting = threading.Thread(target=list, args=(watch,))
    waiting.start()
    sbx.restart()
    waiting.join()
    assert watch.ended is not None
    assert "session ended" in watch.ended
    again = sbx.files.watch()
    waiting = threading.Thread(target=again.events)
    waiting.start()
    again.close()
    waiting.join()
    assert again.ended == "it was closed"


def test_unwatchable_path_is_rejected(sbx: Sandbox) -> None:
    sbx.files.write("file", "x")
    with pytest.raises(FileNotFound):
        sbx.files.watch("missing")
    with pytest.raises(FileError) as raised:
        sbx.files.watch("file")
    assert (raised.value.errno, raised.value.filename) == (errno.ENOTDIR, "file")
    with pytest.raises(FileError, match="work directory"):
        sbx.files.watch("/etc")
    watches = [sbx.files.watch() for _ in range(8)]
    with pytest.raises(RequestError, match="8 watches"):
        sbx.files.watch()
    for watch in watches:
        watch.close()


def test_async_watch_works_in_tasks() -> None:
    async def main() -> None:
        async with AsyncSandbox() as sbx:
            made: asyncio.Future[str] = asyncio.get_running_loop().create_future()

            async def on_event(event: FileEvent) -> None:
                if event.type == "create":
                    made.set_result(event.path)

            await sbx.files.watch("/work", on_event=on_event)
            async with await sbx.files.watch() as watch:
                assert await watch.events(0) == []
                running = asyncio.ensure_future(sbx.run("open('a', 'w')"))
                async for event in watch:
                    assert event == FileEvent("create", "a")
                    break
                assert await made == "a"
                assert (await running).ok
            assert watch.ended == "it was closed"

    asyncio.run(main())
