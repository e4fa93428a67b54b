"""Prepares the interpreter inside the zygote's jail, then serves. No guest code ever runs here."""

import gc
import os
import sys

from . import process, wire, worker
from .importers import mend_importers


def main(native, entered):
    setup = entered["setup"]
    try:
        os.environ.clear()
        os.environ.update(entered["env"])
        os.environ.update(dict.fromkeys(setup["single_threaded"], "1"))
        process.open_streams()
        preloaded = prepare(native, setup)
        # The libraries have read theirs; guests see their own.
        for name in setup["single_threaded"]:
            del os.environ[name]
            os.environ.update(pair for pair in entered["env"] if pair[0] == name)
        # What a package wrote while it was imported is not the workers' to write again.
        process.flush()
    except BaseException as error:
        native.unready(wire.dumps({"cause": "startup", "error": describe(error)}))
    stdin, _, changed = native.serve(wire.dumps(preloaded)).partition("\n")
    # From here on this is a worker.
    if changed:
        os.environ.update(wire.loads(changed))
    worker.main(setup, stdin)


def prepare(native, setup):
    import site

    # `-S` kept it from running outside the jail, where a `.pth` file could have run anything.
    site.main()
    require_one_thread(native, "site")
    sys.path.extend(setup["path"])
    preloaded = [module["name"] for module in setup["preload"] if preload(native, module)]
    lasts = setup["lifetime"] == "many-runs"
    if lasts:
        worker.warm_up()
    mend_importers()
    if lasts:
        gc.collect()
        # What is here lives as long as any worker: keep the collector, and so the copying of
        # pages, away from it.
        gc.freeze()
        native.settle("")
    return preloaded


def preload(native, module):
    name = module["name"]
    try:
        __import__(name)
    except ModuleNotFoundError as error:
        if module["presence"] == "where-installed" and error.name == name.partition(".")[0]:
            return False
        fail_preload(native, name, error)
    except BaseException as error:
        fail_preload(native, name, error)
    require_one_thread(native, name)
    return True


def fail_preload(native, name, error):
    native.unready(wire.dumps({"cause": "preload", "module": name, "error": describe(error)}))


def require_one_thread(native, name):
    if native.threads("") != "1":
        native.unready(wire.dumps({"cause": "threads", "module": name}))


def describe(error):
    # One line, which becomes a part of one sentence.
    text = " ".join(("%s: %s" % (type(error).__name__, error)).split())
    return text.encode("utf-8", "backslashreplace").decode("utf-8")[:2000]
