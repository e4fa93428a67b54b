import os
import warnings

import numpy
from joblib import Parallel, delayed

# Without semaphores joblib warns and works serially.
warnings.simplefilter("error")


def total(array):
    # Runs in a helper process, which imports its parent's modules and receives large arrays through a file.
    return os.getpid(), type(array).__name__, float(array.sum())


array = numpy.ones(1 << 20)
results = Parallel(n_jobs=2)(delayed(total)(array * number) for number in range(4))
assert [result[2] for result in results] == [number * (1 << 20) for number in range(4)], results
assert os.getpid() not in {result[0] for result in results}, results
shared = Parallel(n_jobs=2, max_nbytes=1 << 20)(delayed(total)(array) for _ in range(4))
assert {result[1:] for result in shared} == {("memmap", float(1 << 20))}, shared
threads = Parallel(n_jobs=2, prefer="threads")(delayed(os.getpid)() for _ in range(4))
assert set(threads) == {os.getpid()}
