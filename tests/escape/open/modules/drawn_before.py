"""Preloaded, so that it runs in the zygote: draws from what would then be the same in every worker."""

import multiprocessing.process
import ssl
import tempfile

ssl.RAND_bytes(16)
# There is no directory for temporary files yet.
tempfile.mktemp(dir="/")
multiprocessing.process.current_process()
