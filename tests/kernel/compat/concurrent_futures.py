import concurrent.futures
import multiprocessing


def cube(number):
    return number**3


with concurrent.futures.ThreadPoolExecutor(8) as pool:
    assert list(pool.map(cube, range(50))) == [number**3 for number in range(50)]
context = multiprocessing.get_context("fork")
with concurrent.futures.ProcessPoolExecutor(3, mp_context=context) as pool:
    futures = [pool.submit(cube, number) for number in range(20)]
    done = concurrent.futures.as_completed(futures, timeout=30)
    assert sorted(future.result() for future in done) == [number**3 for number in range(20)]
    failing = pool.submit(divmod, 1, 0)
    assert isinstance(failing.exception(), ZeroDivisionError)
