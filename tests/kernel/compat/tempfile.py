import os
import pathlib
import shutil
import tempfile

assert tempfile.gettempdir() == "/tmp"
with tempfile.NamedTemporaryFile("w+", suffix=".txt") as named:
    named.write("text")
    named.flush()
    assert pathlib.Path(named.name).read_text() == "text"
with tempfile.TemporaryFile() as anonymous:
    anonymous.write(b"x" * 100_000)
with tempfile.TemporaryDirectory() as directory:
    source = pathlib.Path(directory, "source")
    source.mkdir()
    (source / "file").write_text("content")
    shutil.copytree(source, os.path.join(directory, "copy"))
    shutil.make_archive(os.path.join(directory, "archive"), "zip", source)
    shutil.unpack_archive(os.path.join(directory, "archive.zip"), os.path.join(directory, "again"))
    assert pathlib.Path(directory, "again", "file").read_text() == "content"
    os.symlink("source", os.path.join(directory, "link"))
    shutil.move(os.path.join(directory, "copy"), "/work/moved")
assert os.listdir("/work/moved") == ["file"]
assert not os.path.exists(directory)
