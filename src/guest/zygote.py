"""Prepares the interpreter inside the zygote's jail, then serves. No guest code ever runs here."""

import gc
import importlib
import json
import os
import sys


def main(native, entered, worker):
    setup = entered["setup"]
    try:
        os.environ.clear()
        os.environ.update(entered["env"])
        os.environ.update(dict.fromkeys(setup["single_threaded"], "1"))
        preloaded = prepare(native, setup, worker)
    except BaseException as error:
        native.unready(json.dumps({"cause": "startup", "error": describe(error)}))
    changed = native.serve(json.dumps(preloaded))
    # From here on this is a worker.
    if changed:
        os.environ.update(json.loads(changed))
    worker.main(entered)


def prepare(native, setup, worker):
    import site

    # `-S` kept it from running outside the jail, where a `.pth` file could have run anything.
    site.main()
    require_one_thread(native, "site")
    sys.path.extend(setup["path"])
    preloaded = [module["name"] for module in setup["preload"] if preload(native, module)]
    worker.warm_up()
    gc.collect()
    # What is here lives as long as any worker: keep the collector, and so the copying of pages,
    # away from it.
    gc.freeze()
    return preloaded


def preload(native, module):
    name = module["name"]
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        if module["presence"] == "where-installed" and error.name == name.partition(".")[0]:
            return False
        fail_preload(native, name, error)
    except BaseException as error:
        fail_preload(native, name, error)
    require_one_thread(native, name)
    return True


def fail_preload(native, name, error):
    native.unready(json.dumps({"cause": "preload", "module": name, "error": describe(error)}))


def require_one_thread(native, name):
    if native.threads("") != "1":
        native.unready(json.dumps({"cause": "threads", "module": name}))


def describe(error):
    text = "%s: %s" % (type(error).__name__, error)
    return text.encode("utf-8", "backslashreplace").decode("utf-8")[:2000]
