# The last part of a zygote's `python -I -S -c` program, after host/interpreter/facts.py, wire.py and
# sources.py. It reports the interpreter's facts, enters the jail and runs the sources that it
# receives there.
# Descriptor 0 is the control socket, descriptor 1 the sealed memfd with the native module.
import _signal

from _frozen_importlib import ModuleSpec
from _frozen_importlib_external import ExtensionFileLoader


def load_native():
    import _imp

    origin = "/proc/self/fd/1"
    spec = ModuleSpec("_sandfork", ExtensionFileLoader("_sandfork", origin), origin=origin)
    module = _imp.create_dynamic(spec)
    _imp.exec_dynamic(module)
    sys.modules.pop("_sandfork", None)
    return module


def forget_inherited_signals():
    """Resets signals that a caller blocks or ignores (a server's threads, nohup): exec inherits them."""
    _signal.pthread_sigmask(_signal.SIG_SETMASK, ())
    # CPython itself ignores these two signals.
    for number in _signal.valid_signals() - {_signal.SIGPIPE, _signal.SIGXFSZ}:
        if _signal.getsignal(number) == _signal.SIG_IGN:
            _signal.signal(number, _signal.SIG_DFL)
    _signal.signal(_signal.SIGINT, _signal.default_int_handler)


forget_inherited_signals()
native = load_native()
entered = loads(native.enter(dumps(_sandfork_facts())))
sources = Sources(native.source)
sources.add("wire", globals())
sources.import_module(PACKAGE + ".zygote", None, None, ("main",)).main(native, entered)
