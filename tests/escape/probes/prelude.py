# The harness puts a dictionary VARS, then this, before every probe. A probe prints one line that
# starts with ESCAPED when its attempt succeeded, and one with CONTAINED and the reason when not.
import errno
import os
import sys


def var(name, default=""):
    return str((globals().get("VARS") or os.environ).get(name, default))


def contained(reason=""):
    print("CONTAINED", reason, flush=True)


def escaped(how=""):
    print("ESCAPED", how, flush=True)


def number(x86_64, aarch64):
    return x86_64 if os.uname().machine == "x86_64" else aarch64


def syscall(call, *arguments):
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    words = [ctypes.c_long(word) if isinstance(word, int) else word for word in arguments]
    ctypes.set_errno(0)
    result = libc.syscall(ctypes.c_long(call), *words)
    return result, ctypes.get_errno()


def checked(call, *arguments):
    result, code = syscall(call, *arguments)
    if result < 0:
        raise OSError(code, errno_name(code))
    return result


def errno_name(code):
    return errno.errorcode.get(code, str(code))


def run(attempt):
    try:
        attempt()
    except BaseException as error:
        contained(type(error).__name__ + ": " + str(error)[:120])


def tenants(*stages):
    """Runs the stage of this run: the first tenant's, the second's, the first's again."""
    run(stages[int(var("RUN", "1")) - 1])


# What the first tenant keeps for its second turn.
kept = globals().get("kept", {})


