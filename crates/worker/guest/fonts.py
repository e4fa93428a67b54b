"""Keeps the font list that matplotlib builds from every font when it is imported, for later zygotes."""

import os
import sys

from . import wire

# Where matplotlib and fontconfig look for fonts in a sandbox.
ROOTS = (
    "/usr/share/fonts",
    "/usr/local/share/fonts",
    "/usr/X11R6/lib/X11/fonts",
    "/usr/X11/lib/X11/fonts",
    "/usr/lib/openoffice/share/fonts",
)
MAX_DIRECTORIES = 4096
MAX_TEXT = 3 << 20


def place(native, directory):
    """Writes the kept list to the path where matplotlib looks for it, unless its dependencies have changed.
    Returns its name and text."""
    try:
        kept = wire.loads(native.fonts(""))
        name, text = kept["name"], kept["text"]
        if kept["depends"] == depends() and is_name(name) and type(text) is str:
            with open(os.path.join(directory, name), "w", encoding="utf-8") as file:
                file.write(text)
            return name, text
    except Exception:
        # No list is kept, the file is torn, or there is no directory to write to.
        pass
    return None


def keep(native, directory, placed):
    """Keeps the list that matplotlib has built, unless it is the one that was placed."""
    try:
        for name in filter(is_name, os.listdir(directory)):
            with open(os.path.join(directory, name), encoding="utf-8") as file:
                text = file.read(MAX_TEXT + 1)
            if (name, text) != placed and len(text) <= MAX_TEXT:
                native.fonts(wire.dumps({"name": name, "depends": depends(), "text": text}))
    except Exception:
        # The next zygote builds it again.
        pass


def is_name(name):
    return name.startswith("fontlist-") and name.endswith(".json") and "/" not in name


def depends():
    """Returns the dependencies of the list: the installed matplotlib, and each font directory with its
    modification time."""
    found, roots = [], ROOTS
    package = find_matplotlib()
    if package is not None:
        found.append([package, os.stat(os.path.join(package, "__init__.py")).st_mtime_ns])
        roots = (os.path.join(package, "mpl-data", "fonts"), *roots)
    for root in roots:
        for directory, _, _ in os.walk(root):
            found.append([directory, os.stat(directory).st_mtime_ns])
            if len(found) > MAX_DIRECTORIES:
                raise ValueError("too many directories of fonts")
    return found


def find_matplotlib():
    for path in sys.path:
        package = os.path.join(path, "matplotlib")
        if os.path.isfile(os.path.join(package, "__init__.py")):
            return package
    return None
