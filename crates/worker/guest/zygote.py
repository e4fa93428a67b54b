"""Prepares the interpreter in the zygote's jail, then serves requests. No guest code ever runs in a
zygote."""

import gc
import os
import sys
import time

from . import ending, fonts, process, runner, wire, worker
from .importers import retry_failed_importers
from .network import explain_no_address, explain_no_certificates
from .patches import Patches
from .program import check_project
from .spawned import refuse_lost
from .threads import QUOTES, quote_sources

# Wait up to a second for threads to end.
THREAD_CHECKS = 100
THREAD_PAUSE = 0.01
# The modules with numpy's function table, in numpy 2 and before.
ARRAYS = ("numpy._core._multiarray_umath", "numpy.core._multiarray_umath")
# The modules of `requests` that open connections.
ADAPTERS = ("requests.adapters", "pip._vendor.requests.adapters")
# The modules that start fresh Python processes.
STARTERS = ("multiprocessing.popen_spawn_posix", "multiprocessing.popen_forkserver")
# Modules to import together with another one, because they build data on import: the list of all fonts, which
# is read from each font.
COMPANIONS = {"matplotlib": ("matplotlib.font_manager",)}


def load(native, setup):
    """Imports the parts of the guest package that this zygote and its workers need."""
    try:
        if "*" not in setup["imports"]:
            from . import imports  # noqa: F401
        if lasts(setup):
            worker.load()
    except BaseException as error:
        fail_startup(native, error)


def lasts(setup):
    return setup["lifetime"] == "many-runs"


def main(native, entered):
    setup = entered["setup"]
    try:
        os.environ.clear()
        os.environ.update(entered["env"])
        os.environ.update(setup["preload_env"])
        # The C library has already read `TZ`.
        time.tzset()
        process.open_streams()
        preloaded = prepare(native, setup, entered["limits_objects"], entered["work"])
        # The libraries have read these variables. Guests see the policy's values.
        for name, _ in setup["preload_env"]:
            # A preloaded package may have removed the variable.
            os.environ.pop(name, None)
            os.environ.update(pair for pair in entered["env"] if pair[0] == name)
        # Otherwise each worker would write a package's import-time output again.
        ending.flush()
    except BaseException as error:
        fail_startup(native, error)
    if entered["work"] is not None:
        # First, because code that writes a module expects to import it.
        sys.path.insert(0, entered["work"])
    offered = offer(setup)
    born = native.serve((wire.dumps(preloaded), offered))
    # From here on the process is a worker.
    worker.main(native, setup, offered, *born)


def offer(setup):
    """Returns the tuple for the native run path, if workers are to use that path."""
    # The files of a project are linked between request and run.
    is_native = setup["run_path"] == "native" and setup["project"] is None
    return worker.offer() if is_native else None


def prepare(native, setup, limits_objects, work):
    import site

    # `-S` delayed `site` until the jail is closed, because a `.pth` file can run any code.
    site.main()
    # With `-I`, `site` leaves out this hook of interactive sessions.
    site.enablerlcompleter()
    # Some distributions install their own hook, which files reports.
    runner.ordinary_hook = sys.excepthook
    process.set_ordinary_flags(native)
    require_apart(native, "site")
    ending.note_libraries()
    sys.path.extend(setup["path"])
    if "*" not in setup["imports"]:
        from .imports import guard_imports

        guard_imports(setup["imports"])
    if setup["project"] is not None:
        check_project(setup["project"])
    changes = {"asyncio.base_events": explain_no_address}
    changes.update(dict.fromkeys(ADAPTERS, explain_no_certificates))
    changes.update(dict.fromkeys(STARTERS, refuse_lost))
    if not QUOTES:
        changes["threading"] = quote_sources
    if limits_objects:
        runner.reserve.leave_to(native)
        changes.update(dict.fromkeys(ARRAYS, native.include_arrays))
    process.seal_memory_files()
    process.follow_breakpoints()
    Patches(changes).prepare()
    preloaded = preload_all(native, setup["preload"], work)
    if lasts(setup):
        # Each rehearsal ends with a collection.
        gc.collect()
        if setup["preload"]:
            process.note_generators()
        gc.freeze()
        worker.warm_up(native)
    retry_failed_importers()
    if lasts(setup):
        gc.collect()
    # These objects live as long as any worker, and the collection at a program's end need not visit them.
    # Without the freeze, the collector would write to their pages and the kernel would copy them.
    gc.freeze()
    ending.note_start()
    if lasts(setup):
        native.settle("")
    return preloaded


def preload_all(native, modules, work):
    """Imports the importable modules of the preload list, and returns their names.

    Packages may keep the path of the current directory. It is the guest's work directory, unless the zygote
    has none (`landlock`).

    matplotlib refuses to be imported without a writable directory. `MPLCONFIGDIR` is writable in each worker,
    but at level `landlock` the zygote does not have it."""
    if not modules:
        return []
    directory, access = os.environ.get("MPLCONFIGDIR"), os.access

    def pretended(path, *args, **kwargs):
        return path == directory or access(path, *args, **kwargs)

    os.access = pretended
    placed = fonts.place(native, directory)
    if work is not None:
        os.chdir(work)
    try:
        return [module["name"] for module in modules if preload(native, module)]
    finally:
        if work is not None:
            os.chdir("/")
        os.access = access
        native.preloading("")
        fonts.keep(native, directory, placed)


def preload(native, module):
    name = module["name"]
    native.preloading(name)
    try:
        for wanted in (name, *COMPANIONS.get(name, ())):
            __import__(wanted)
    except ModuleNotFoundError as error:
        if module["presence"] == "where-installed" and error.name == name.partition(".")[0]:
            return False
        fail_preload(native, name, error)
    except BaseException as error:
        fail_preload(native, name, error)
    require_apart(native, name)
    return True


def fail_startup(native, error):
    native.unready(wire.dumps({"cause": "startup", "error": describe(error)}))


def fail_preload(native, name, error):
    native.unready(wire.dumps({"cause": "preload", "module": name, "error": describe(error)}))


def require_apart(native, name):
    """Refuses state that workers must not inherit from the zygote: threads, and memory that they would
    share."""
    # The kernel counts a thread for a moment after it was joined, and some packages start a thread that ends
    # by itself.
    for _ in range(THREAD_CHECKS):
        if native.threads("") == "1":
            break
        time.sleep(THREAD_PAUSE)
    else:
        native.unready(wire.dumps({"cause": "threads", "module": name}))
    if native.shares(""):
        native.unready(wire.dumps({"cause": "shared-memory", "module": name}))


def describe(error):
    # A single line, because it becomes part of a sentence.
    text = " ".join(("%s: %s" % (type(error).__name__, error)).split())
    return text.encode("utf-8", "backslashreplace").decode("utf-8")[:2000]
