"""Adds a package environment, at `path`, to a running session. `added` is whether the session sees the environment, or
which packages the session already has in another version."""

import importlib
import os
import site
import sys
from importlib import metadata

version = "python%d.%d" % sys.version_info[:2]
site_packages = os.path.join(path, "lib", version, "site-packages")
added = os.path.isdir(site_packages)
if added and site_packages not in sys.path:
    others = []
    for package in metadata.distributions(path=[site_packages]):
        name = package.metadata["Name"]
        try:
            there = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
        if there != package.version:
            others.append("%s==%s" % (name, there))
    added = others or True
    if not others:
        site.addsitedir(site_packages)
        importlib.invalidate_caches()
