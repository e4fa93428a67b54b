import importlib
import os
import pathlib

names = ["grüße.txt", "日本語", "emoji 🦀", "a\u0301", b"\xff\xfe not utf-8", "new\nline", "x" * 255]
for name in names:
    path = os.fsdecode(name)
    pathlib.Path(path).write_text("ünï", encoding="utf-8")
assert sorted(os.listdir(b".")) == sorted(map(os.fsencode, names))
assert pathlib.Path("日本語").read_text() == "ünï"
print("✓ print", "日本語")

pathlib.Path("größe.py").write_text("wert = 'ß'\n", encoding="utf-8")
assert importlib.import_module("größe").wert == "ß"
