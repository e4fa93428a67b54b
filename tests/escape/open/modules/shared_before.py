"""A preloaded module: it keeps a page that a process shares with all its children."""

import mmap

page = mmap.mmap(-1, mmap.PAGESIZE)
