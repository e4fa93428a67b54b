"""Prints values that must differ between workers, one line for each source."""

import os
import random
import secrets
import ssl
import sys
import tempfile
import uuid

draws = {
    "random": random.random(),
    "random.Random": random.Random().random(),
    "random.SystemRandom": random.SystemRandom().random(),
    "os.urandom": os.urandom(16).hex(),
    "secrets": secrets.token_hex(),
    "ssl.RAND_bytes": ssl.RAND_bytes(16).hex(),
    "uuid1": uuid.uuid1(),
    "uuid4": uuid.uuid4(),
    "tempfile": os.path.basename(tempfile.mkstemp()[1]),
    "tempfile.mktemp": os.path.basename(tempfile.mktemp()),
}
if "numpy" in sys.modules:
    import numpy

    draws["numpy.random.rand"] = numpy.random.rand()
    draws["numpy.random.randint"] = numpy.random.randint(1 << 62)
    draws["numpy.random.default_rng"] = numpy.random.default_rng().random()
    draws["numpy.random.RandomState"] = numpy.random.RandomState().rand()
for source, draw in draws.items():
    print(source, draw, sep="\t")
