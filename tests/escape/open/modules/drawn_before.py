"""A preloaded module: in the zygote, it draws from generators that every worker would then share."""

import multiprocessing.process
import ssl
import tempfile

ssl.RAND_bytes(16)
# There is no directory for temporary files yet.
tempfile.mktemp(dir="/")
multiprocessing.process.current_process()
