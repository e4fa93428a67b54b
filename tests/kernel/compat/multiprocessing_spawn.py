import multiprocessing
import pathlib
import pickle
from concurrent.futures import ProcessPoolExecutor

pathlib.Path("helper.py").write_text("def double(number):\n    return 2 * number\n")
import helper


class Own:
    @staticmethod
    def double(number):
        return 2 * number


def own(number):
    return 2 * number


# Outside a sandbox no new process finds the function either. A pool then restarts workers endlessly.
def refused(act):
    try:
        act()
    except pickle.PicklingError as error:
        return 'multiprocessing.get_context("fork")' in str(error)


if __name__ == "__main__":
    for method in ("spawn", "forkserver"):
        context = multiprocessing.get_context(method)
        with context.Pool(2) as pool:
            assert pool.map(helper.double, range(10)) == [2 * number for number in range(10)], method
            assert refused(lambda: pool.map(own, range(3))), method
            assert refused(lambda: pool.apply(Own.double, (3,))), method
        with ProcessPoolExecutor(1, mp_context=context) as pool:
            assert pool.submit(helper.double, 3).result() == 6, method
            assert refused(pool.submit(own, 3).result), method
        assert refused(context.Process(target=own, args=(3,)).start), method
        with multiprocessing.get_context("fork").Pool(1) as pool:
            assert pool.map(own, range(3)) == [0, 2, 4], method
