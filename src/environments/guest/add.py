"""Adds an environment of packages to those that a running session can import. `path` is where it is."""

import importlib
import os
import site
import sys

version = "python%d.%d" % sys.version_info[:2]
site_packages = os.path.join(path, "lib", version, "site-packages")
is_shown = os.path.isdir(site_packages)
if is_shown and site_packages not in sys.path:
    site.addsitedir(site_packages)
    importlib.invalidate_caches()
