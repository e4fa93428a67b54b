# The text of a zygote's `python -I -S -c`: says who the interpreter is, then enters the jail.
# Follows the text of host/interpreter/facts.py. Descriptor 0 is the control socket, descriptor 1 the sealed memfd with the native module.
import json
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


native = load_native()
entered = json.loads(native.enter(json.dumps(_sandfork_facts())))
modules = {}
for name, source in entered["sources"]:
    module = type(sys)(name)
    exec(compile(source, "<sandfork %s>" % name, "exec"), module.__dict__)
    modules[name] = module
modules["zygote"].main(native, entered, modules["worker"])
