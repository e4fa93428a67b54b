"""Finds what an environment has from a directory of the host, as after `pip install -e`. A sandbox shows such a
directory only if its policy names it."""

import os
import sys

# Files with paths that are looked at in one directory, and characters of each.
MAX_FILES, MAX_TEXT = 64, 16 * 1024


def hidden_directory(module):
    """The directory that has the module and that the sandbox does not show, or `None`."""
    # The finders of setuptools know the place of each module.
    for name, finder in list(sys.modules.items()):
        if type(name) is str and name.startswith("__editable__"):
            places = vars(finder).get("MAPPING")
            if type(places) is dict and type(places.get(module)) is str:
                return os.path.dirname(places[module])
    for directory in filter(os.path.isdir, list(sys.path)):
        # The file is called by the package.
        files = [name for name in os.listdir(directory) if name.endswith(".pth") and plain(module) in plain(name)]
        for name in files[:MAX_FILES]:
            with open(os.path.join(directory, name), errors="replace") as file:
                lines = file.read(MAX_TEXT).splitlines()
            for line in lines:
                if line.startswith("/") and not os.path.isdir(line):
                    return line
    return None


def plain(name):
    """A name as distributions and modules have it in common."""
    return name.lower().replace("-", "").replace("_", "")
