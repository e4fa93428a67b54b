"""New features of Python 3.14, among them one that could reach another process."""

import os
import sys


def returns_in_finally():
    source = "def f():\n    try:\n        return 1\n    finally:\n        return 2\n"
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        compile(source, "<f>", "exec")
    return [warning.category for warning in said]


if __name__ == "__main__" and sys.version_info >= (3, 14):
    import annotationlib
    import asyncio
    import concurrent.futures
    import json
    import multiprocessing
    import pathlib
    import warnings
    from compression import zstd

    assert zstd.decompress(zstd.compress(b"a" * 1000)) == b"a" * 1000

    # PEP 649 and PEP 750, whose syntax older compilers reject.
    source = "class Later:\n    of: Missing\nname = 'x'\ntemplate = t'{name}'"
    names = {}
    exec(source, names)
    later = annotationlib.get_annotations(names["Later"], format=annotationlib.Format.STRING)
    assert later == {"of": "Missing"}, later
    assert names["template"].values == ("x",)
    assert returns_in_finally() == [SyntaxWarning]

    # The default is `forkserver`, which needs a socket with a path.
    pathlib.Path("helper.py").write_text("def double(number):\n    return 2 * number\n")
    import helper

    assert multiprocessing.get_start_method() == "forkserver"
    with concurrent.futures.ProcessPoolExecutor(2) as pool:
        assert list(pool.map(helper.double, range(3))) == [0, 2, 4]
    with concurrent.futures.InterpreterPoolExecutor(2) as pool:
        assert list(pool.map(abs, range(-2, 1))) == [2, 1, 0]

    # It asks the kernel to share blocks (FICLONE), and falls back only after a few of the possible errors.
    pathlib.Path("made").write_bytes(b"x" * 100_000)
    pathlib.Path("made").copy("copied", preserve_metadata=True)
    assert pathlib.Path("copied").read_bytes() == b"x" * 100_000

    async def talk():
        child = await asyncio.create_subprocess_exec("cat", stdin=-1, stdout=-1)
        return await child.communicate(b"said")

    assert asyncio.run(talk()) == (b"said", None)

    # The remaining stack is measured in bytes, not counted in frames.
    try:
        json.loads("[" * 1_000_000)
    except RecursionError:
        pass

    # PEP 768 writes to the memory of another process.
    pathlib.Path("script.py").write_text("print('reached')")
    child = os.fork()
    if not child:
        os.read(os.pipe()[0], 1)
    for pid in (child, 1):
        try:
            sys.remote_exec(pid, "script.py")
        except PermissionError:
            pass
        else:
            raise AssertionError(pid)
    os.kill(child, 9)
    os.waitpid(child, 0)
