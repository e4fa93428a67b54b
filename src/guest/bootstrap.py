# The text of a zygote's `python -I -S -c`: says who the interpreter is, then enters the jail.
# Descriptor 0 is the control socket, descriptor 1 the sealed memfd with the native module.
import json
import os
import sys

from _frozen_importlib import ModuleSpec
from _frozen_importlib_external import ExtensionFileLoader


def load_native():
    import _imp

    origin = "/proc/self/fd/1"
    spec = ModuleSpec("_sandfork", ExtensionFileLoader("_sandfork", origin), origin=origin)
    module = _imp.create_dynamic(spec)
    _imp.exec_dynamic(module)
    return module


def find_venv():
    # PEP 405: `pyvenv.cfg` beside the executable or one directory above it.
    bin_dir = os.path.dirname(os.path.abspath(sys.executable))
    for directory in (bin_dir, os.path.dirname(bin_dir)):
        if os.path.isfile(os.path.join(directory, "pyvenv.cfg")):
            return directory
    return None


def facts():
    base = sys.base_prefix
    return {
        "implementation": sys.implementation.name,
        "version": list(sys.version_info[:3]),
        "executable": os.path.abspath(sys.executable),
        "prefix": sys.prefix,
        "base_prefix": base,
        "stdlib": os.path.dirname(os.__file__),
        "free_threaded": not getattr(sys, "_is_gil_enabled", lambda: True)() or "t" in getattr(sys, "abiflags", ""),
        "venv": find_venv(),
    }


native = load_native()
entered = json.loads(native.enter(json.dumps(facts())))
modules = {}
for name, source in entered["sources"]:
    module = type(sys)(name)
    exec(compile(source, "<sandfork %s>" % name, "exec"), module.__dict__)
    modules[name] = module
modules["zygote"].main(native, entered["setup"], modules["worker"])
