# The last part of a zygote's `python -I -S -c` program, after host/interpreter/facts.py. It reports the
# interpreter's facts, enters the jail and starts the guest package there. It is small, because each zygote
# compiles it. Descriptor 0 is the control socket. Descriptor 1 is the memfd with the native module, which is
# complete and sealed once a byte arrives on the socket.
import _signal
import builtins
import marshal
import posix
import sys

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
    """Resets signals that the caller blocks or ignores (a server's threads, nohup), because execve(2)
    inherits both."""
    _signal.pthread_sigmask(_signal.SIG_SETMASK, ())
    # CPython itself ignores these two signals.
    for number in _signal.valid_signals() - {_signal.SIGPIPE, _signal.SIGXFSZ}:
        if _signal.getsignal(number) == _signal.SIG_IGN:
            _signal.signal(number, _signal.SIG_DFL)
    _signal.signal(_signal.SIGINT, _signal.default_int_handler)


def kept_codes(number):
    """Returns the code of each source, compiled by an earlier zygote of this Python. Empty for a new file."""
    kept = posix.pread(number, posix.fstat(number).st_size, 0)
    return marshal.loads(kept) if kept else {}


forget_inherited_signals()
posix.read(0, 1)
native = load_native()
entered = native.enter(_sandfork_facts())
file = native.codes("")
codes = kept_codes(int(file)) if file else {}
# A copy of the builtins, as for the modules that it imports: a guest may replace `len` in the shared ones. A
# name, because programs expect `__name__` in the globals of each frame.
namespace = {"__name__": "sandfork_guest.sources", "__builtins__": dict(vars(builtins))}
code = codes.get("sources") or compile(native.source("sources"), "<sandfork sources>", "exec", 0, True, 2)
exec(code, namespace)
namespace["start"](native, entered, codes, file)
