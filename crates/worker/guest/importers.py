"""Repairs the import system's caches of directories that it could not read."""

import errno
import os
import stat
import sys


def retry_failed_importers():
    """Makes importers retry directories that they could not read. An importer that runs out of memory or
    descriptors treats a package as absent, and each worker inherits its cache."""
    for path, finder in list(sys.path_importer_cache.items()):
        if finder is None and is_directory(path):
            del sys.path_importer_cache[path]
        elif not getattr(finder, "_path_cache", True):
            finder.invalidate_caches()


def is_directory(path):
    try:
        return stat.S_ISDIR(os.stat(path).st_mode)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.EACCES):
            return False
        raise
