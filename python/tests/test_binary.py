"""Where the package looks for its program, and which owners it accepts."""

from __future__ import annotations

import os
import pathlib

import pytest

import sandfork
from sandfork import _binary


@pytest.fixture(autouse=True)
def nothing_else(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    """Hides all programs except those that a test creates."""
    monkeypatch.delenv(_binary.VARIABLE, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.setattr(_binary.sysconfig, "get_path", lambda *_: str(tmp_path / "scripts"))
    monkeypatch.setattr(_binary.sys, "executable", str(tmp_path / "venv" / "python"))


def program(path: pathlib.Path) -> str:
    path.parent.mkdir(parents=True)
    path.touch(0o755)
    return str(path)


@pytest.mark.parametrize(
    ("package", "found"),
    [
        ("lib/python3.11/site-packages", "bin"),
        ("lib64/python3.13t/site-packages", "bin"),
        ("local/lib/python3/dist-packages", "local/bin"),
        ("target", "target/bin"),
        # A checkout, and packages that were copied into another directory.
        ("checkout/python/src", None),
        ("lib/python/packages", None),
        ("lib/python3.11/site-packages/vendored", None),
    ],
)
def test_program_next_to_the_package_is_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path, package: str, found: str | None
) -> None:
    monkeypatch.setattr(_binary, "__file__", str(tmp_path / package / "sandfork" / "_binary.py"))
    expected = None if found is None else program(tmp_path / found / "sandfork")
    if expected is None:
        # Three directories above the package.
        program((tmp_path / package).parents[2] / "bin" / "sandfork")
        with pytest.raises(sandfork.BinaryNotFound):
            _binary.find()
    else:
        assert _binary.find() == expected


@pytest.mark.parametrize("place", ["scripts", "venv"])
@pytest.mark.parametrize("above", [0, 1, 2])
def test_program_writable_by_others_is_not_used(tmp_path: pathlib.Path, place: str, above: int) -> None:
    found = program(tmp_path / place / "sandfork")
    assert _binary.find() == found
    spoilt = [pathlib.Path(found), *pathlib.Path(found).parents][above]
    spoilt.chmod(0o757)
    with pytest.raises(sandfork.BinaryNotFound, match=rf"other users may write to {spoilt}\)"):
        _binary.find()
    if os.geteuid() == 0:
        # A group without a name may have any member.
        os.chown(spoilt, -1, 12345)
        spoilt.chmod(0o775)
        with pytest.raises(sandfork.BinaryNotFound, match="other users may write to"):
            _binary.find()
        os.chown(spoilt, 12345, 0)
        with pytest.raises(sandfork.BinaryNotFound, match=f"{spoilt} belongs to user 12345"):
            _binary.find()
        os.chown(spoilt, 0, 0)
    spoilt.chmod(0o755)
    assert _binary.find() == found


def test_a_link_to_a_program_of_others_is_not_followed(tmp_path: pathlib.Path) -> None:
    behind = pathlib.Path(program(tmp_path / "shared" / "sandfork"))
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "sandfork").symlink_to(behind)
    assert _binary.find() == str(tmp_path / "scripts" / "sandfork")
    behind.parent.chmod(0o777)
    with pytest.raises(sandfork.BinaryNotFound, match="other users may write to"):
        _binary.find()
    # A sticky directory, as /tmp is.
    behind.parent.chmod(0o1777)
    assert _binary.find()


def test_explicitly_named_program_is_used(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    found = program(tmp_path / "path" / "sandfork")
    (tmp_path / "path").chmod(0o777)
    assert _binary.find() == found
    monkeypatch.setenv(_binary.VARIABLE, found)
    assert _binary.find() == found
