"""Finds packages that an environment loads from a host directory, as after `pip install -e`. A sandbox shows
such a directory only if its policy names it."""

import os
import sys

# Maximum `.pth` files to read per directory, and characters of each.
MAX_FILES, MAX_TEXT = 64, 16 * 1024


def hidden_directory(module):
    """Returns the directory that contains the module and that the sandbox does not show, or `None`."""
    # The finders of setuptools map each module to its path.
    for name, finder in list(sys.modules.items()):
        if type(name) is str and name.startswith("__editable__"):
            places = vars(finder).get("MAPPING")
            if type(places) is dict and type(places.get(module)) is str:
                return os.path.dirname(places[module])
    for directory in filter(os.path.isdir, list(sys.path)):
        # The file is named after the package.
        files = [name for name in os.listdir(directory) if name.endswith(".pth") and plain(module) in plain(name)]
        for name in files[:MAX_FILES]:
            with open(os.path.join(directory, name), errors="replace") as file:
                lines = file.read(MAX_TEXT).splitlines()
            for line in lines:
                if line.startswith("/") and not os.path.isdir(line):
                    return line
    return None


def plain(name):
    """Normalises a name, so that distribution and module names compare equal."""
    return name.lower().replace("-", "").replace("_", "")
