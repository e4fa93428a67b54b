"""Prints as JSON the properties in which interpreters differ. Runs as a script, outside and inside a sandbox."""

import builtins
import faulthandler
import gc
import json
import locale
import os
import resource
import signal
import site
import subprocess
import sys
import threading
import warnings

main = sys.modules["__main__"]
umask = os.umask(0)
os.umask(umask)
command = None
if os.path.exists("/proc/self/cmdline"):
    with open("/proc/self/cmdline", "rb") as file:
        command = len(file.read().split(b"\0")) - 1


def stream(file):
    return [type(file).__name__, file.name, file.mode, file.encoding, file.errors, file.line_buffering]


def look(name, item):
    try:
        found[name] = item()
    except Exception as error:
        found[name] = repr(error)


def breakpoints():
    """Returns the calls of `breakpoint` and its warnings for each value of PYTHONBREAKPOINT."""
    met = []
    import pdb

    def meet(*args, **kwargs):
        met.append([args, kwargs, sys._getframe(1).f_code.co_name])
        return 5

    ordinary, pdb.set_trace, main.meet = pdb.set_trace, meet, meet
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for value in ("0", "", "__main__.meet", "nowhere.f", "os.nothing", "nothing", ".f", "..", "print.", "int"):
            os.environ["PYTHONBREAKPOINT"] = value
            met.append([value, breakpoint("7") if value == "int" else breakpoint()])
        del os.environ["PYTHONBREAKPOINT"]
        met.append(breakpoint(header="x"))
    pdb.set_trace = ordinary
    del main.meet
    return met, [[str(item.message), item.category.__name__, item.lineno] for item in caught]


found = {}
for name in dir(sys.flags):
    if name[0] != "_" and type(getattr(sys.flags, name)) in (int, bool):
        found["flags." + name] = getattr(sys.flags, name)
for name in (
    "argv",
    "warnoptions",
    "_xoptions",
    "executable",
    "_base_executable",
    "dont_write_bytecode",
    "prefix",
    "exec_prefix",
    "base_prefix",
    "platlibdir",
    "pycache_prefix",
    "orig_argv",
):
    look("sys." + name, lambda: getattr(sys, name))
look("sys.path", lambda: sys.path)
look("sys.meta_path", lambda: [getattr(item, "__name__", type(item).__name__) for item in sys.meta_path])
look("sys.path_hooks", lambda: len(sys.path_hooks))
look("sys.excepthook", lambda: sys.excepthook is sys.__excepthook__)
look("sys.displayhook", lambda: sys.displayhook is sys.__displayhook__)
look("sys.unraisablehook", lambda: sys.unraisablehook is sys.__unraisablehook__)
look("sys.interactivehook", lambda: hasattr(sys, "__interactivehook__"))
look("sys.breakpointhook", lambda: sys.breakpointhook is sys.__breakpointhook__)
look("breakpoints", breakpoints)
look("sys.trace", lambda: [sys.gettrace(), sys.getprofile()])
look("sys.recursion", sys.getrecursionlimit)
look("sys.switch", sys.getswitchinterval)
look(
    "sys.encodings",
    lambda: [
        sys.getdefaultencoding(),
        sys.getfilesystemencoding(),
        sys.getfilesystemencodeerrors(),
        locale.getpreferredencoding(False),
    ],
)
look("sys.stdin", lambda: stream(sys.stdin))
look("sys.stdout", lambda: stream(sys.stdout))
look("sys.stderr", lambda: stream(sys.stderr))
look("sys.modules", lambda: sorted(name for name in sys.modules if "sandfork" in name))
look("sys.children", subprocess._args_from_interpreter_flags)
look("main", lambda: sorted(name for name in vars(main) if name[:2] == "__" and name != "__annotations__"))
look("main.file", lambda: main.__file__)
look("main.loader", lambda: type(main.__loader__).__name__)
look("main.spec", lambda: [main.__spec__, main.__package__, main.__name__])
look("builtins", lambda: sorted(vars(builtins)))
look("builtins.import", lambda: type(__import__).__name__)
look("site.user", lambda: site.ENABLE_USER_SITE)
look("gc", lambda: [gc.isenabled(), gc.get_threshold(), gc.get_debug(), len(gc.callbacks)])
look("gc.frozen", lambda: gc.get_freeze_count() > 100_000)
look(
    "signals",
    lambda: {
        number.name: repr(signal.getsignal(number)).partition(" at ")[0]
        for number in sorted(signal.valid_signals())
        if isinstance(number, signal.Signals)
    },
)
look("signals.blocked", lambda: sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())))
look("signals.wakeup", lambda: signal.set_wakeup_fd(-1))
look(
    "threads",
    lambda: [
        threading.current_thread() is threading.main_thread(),
        threading.active_count(),
        threading.current_thread().name,
        threading.current_thread().ident == threading.get_ident(),
    ],
)
look("faulthandler", faulthandler.is_enabled)
look("warnings", lambda: [str(item) for item in warnings.filters])
look("umask", lambda: umask)
look("cwd", os.getcwd)
look(
    "locale",
    lambda: [locale.setlocale(kind) for kind in (locale.LC_CTYPE, locale.LC_NUMERIC, locale.LC_TIME)],
)
look("environ", lambda: dict(os.environ))
look("readline", lambda: [name in sys.modules for name in ("readline", "rlcompleter")])
look(
    "limits",
    lambda: {
        name: resource.getrlimit(getattr(resource, name))
        for name in dir(resource)
        if name.startswith("RLIMIT_")
    },
)
look("descriptors", lambda: sorted(int(name) for name in os.listdir("/proc/self/fd"))[:3])
look("command", lambda: command)
print(json.dumps(found))
