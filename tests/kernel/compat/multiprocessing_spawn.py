import multiprocessing
import pathlib

pathlib.Path("helper.py").write_text("def double(number):\n    return 2 * number\n")
import helper

if __name__ == "__main__":
    for method in ("spawn", "forkserver"):
        with multiprocessing.get_context(method).Pool(2) as pool:
            assert pool.map(helper.double, range(10)) == [2 * number for number in range(10)], method
