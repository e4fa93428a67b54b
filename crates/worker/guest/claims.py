"""Collects the refusals that the guest met, as far as its own process can tell: uncaught exceptions, and
imports that its policy does not list. They prove nothing to the supervisor, which presents them to its caller
as the guest's own claims."""

import errno
from os import F_OK, R_OK, W_OK, access, fsdecode, getcwd
from posixpath import dirname, join, normpath

from .cell import CLAIMS, SOURCES, clean, line_entry

# The supervisor reads no more than this number.
MAX = 64
MAX_CAUSES = 16
# Maximum bytes of a path (PATH_MAX).
MAX_PATH = 4096
REFUSALS = (errno.EPERM, errno.EACCES, errno.EAFNOSUPPORT, errno.ENOSYS, errno.EROFS)
FULL = (errno.ENOSPC, errno.EDQUOT)
# A path that the sandbox does not show appears to be missing.
MISSING = (errno.ENOENT, errno.ENOTDIR)
# Functions of `subprocess` and `os` whose exceptions name a program.
RUNS = ("_execute_child", "_posix_spawn", "_execvpe", "_spawnvef")
# Source text of calls that create a file or directory.
MAKES = (
    r"""\bopen\(.*["'][bt]*[wax][bt+]*["']|\bO_CREAT\b|"""
    r"""\b(mkdir|makedirs|mkfifo|mknod|symlink|symlink_to|touch|write_bytes|write_text)\("""
)


def claim(operation, target, place, number=None, changes=None):
    """Adds a refusal. Equal ones are counted."""
    filename, line = place
    key = operation, target, filename, line
    known = CLAIMS.get(key)
    if known is None:
        if len(CLAIMS) >= MAX:
            operation, target, key = "more", None, None
            known = CLAIMS.get(key)
        if known is None:
            known = CLAIMS[key] = {"operation": operation, "count": 0}
            if key is not None:
                known.update(file=filename, line=line)
            if target is not None:
                known["target"] = target
    if number is not None:
        known["errno"] = number
    if changes is not None:
        known["changes"] = changes
    known["count"] += 1


def claim_error(error):
    """Adds the refusals behind an uncaught exception. Attributes of the exception may be guest code, whose
    exceptions are ignored."""
    try:
        own = None
        # Bounded, because the causes of exceptions may form a cycle.
        for _ in range(MAX_CAUSES):
            runs, found, last = places_of(error.__traceback__)
            # The traceback of a cause may begin in a library that the guest's code called.
            own = found or own
            if issubclass(type(error), OSError):
                place = (own.tb_frame.f_code.co_filename, own.tb_lineno or 0) if own else last
                claim_os_error(error, runs, clean_place(place), found)
            error = attribute(error, "__cause__") or attribute(error, "__context__")
            if error is None:
                break
    except BaseException:
        pass


def claim_os_error(error, runs, place, trace):
    from .network import destination, made_socket

    number = attribute(error, "errno")
    if type(number) is not int:
        return
    host = destination(error)
    if host is not None:
        # The errors of name lookups have their own error numbers.
        claim("connect", host, place, number if number > 0 else None)
        return
    if number not in REFUSALS + MISSING + FULL:
        return
    named = [attribute(error, name) for name in ("filename", "filename2")]
    if number in FULL:
        # Most calls that write have no path.
        claim("space", absolute(named[0]), place, number)
        return
    targets = [target for target in map(program if runs else absolute, named) if target is not None]
    for target in targets:
        claim("run" if runs else "access", target, place, number, changed(target, number, trace))
    if not targets and named == [None, None] and number in REFUSALS:
        operation = "socket" if made_socket(error) else "system call"
        claim(operation, None, place, number)


def changed(target, number, trace):
    """Returns the path that would have to be writable, if a change of `target` was refused for another reason
    than file permissions: the target, or the nearest existing directory above it. A file to create in a
    directory that the sandbox does not show has no known directory above it, so its own path is returned.
    Returns `None` for other refusals."""
    if number == errno.ENOENT and trace is not None and makes_file(trace):
        return target
    if number not in (errno.EROFS, errno.EACCES):
        return None
    while not access(target, F_OK) and target != "/":
        target = dirname(target)
    # Landlock fails with the errno of permissions, and access(2) checks permissions only.
    return target if number == errno.EROFS or access(target, R_OK | W_OK) else None


def makes_file(trace):
    """Returns whether the guest's failed call creates a file or directory, judging by its source text."""
    try:
        # The report of the exception has imported it.
        import re

        return re.search(MAKES, text_of_call(trace), re.DOTALL) is not None
    except BaseException:
        return False


def text_of_call(trace):
    """Returns the source text of the failed call, or its line before Python 3.11."""
    code, line = trace.tb_frame.f_code, trace.tb_lineno
    lines = line_entry(code.co_filename)[2]
    if not hasattr(code, "co_positions"):
        return lines[line - 1]
    first, last, start, end = list(code.co_positions())[trace.tb_lasti // 2]
    text = [line.encode() for line in lines[first - 1 : last]]
    # In this order, because both may be on the same line.
    text[-1] = text[-1][:end]
    text[0] = text[0][start:]
    return b"".join(text).decode()


def attribute(error, name):
    """Returns an attribute of an untrusted object, or `None`. `isinstance` would not be safer: it reads the
    object's `__class__`."""
    try:
        return getattr(error, name, None)
    except BaseException:
        return None


def places_of(trace):
    """Returns whether a program was to be executed, the innermost traceback entry in the guest's own code or
    `None`, and the innermost line."""
    runs, own, last = False, None, ("", 0)
    while trace is not None:
        code = trace.tb_frame.f_code
        if not code.co_filename.startswith("<sandfork "):
            last = code.co_filename, trace.tb_lineno or 0
            if code.co_filename in SOURCES:
                own = trace
            runs = code.co_name in RUNS
        trace = trace.tb_next
    return runs, own, last


def place_of_frame(frame):
    """Returns the innermost line of the guest's own code from which a frame was called, or else the frame's
    own line."""
    last = None
    while frame is not None:
        code = frame.f_code
        if not code.co_filename.startswith("<sandfork "):
            here = code.co_filename, frame.f_lineno or 0
            if code.co_filename in SOURCES:
                return clean_place(here)
            last = last or here
        frame = frame.f_back
    return clean_place(last or ("", 0))


def clean_place(place):
    filename, line = place
    return clean(filename)[:MAX_PATH], line


def absolute(name):
    """Returns a file name as an absolute path, or `None` if the kernel rejects such a path or it is not valid
    Unicode."""
    if type(name) not in (str, bytes):
        return None
    try:
        path = normpath(join(getcwd(), fsdecode(name)))
        length = len(path.encode("utf-8"))
    except (OSError, ValueError):
        return None
    return path if length <= MAX_PATH and "\0" not in path else None


def program(name):
    """Returns the path of a program. A name without a slash was looked up in the program directories."""
    if type(name) in (str, bytes) and name and "/" not in fsdecode(name):
        name = "/usr/bin/" + fsdecode(name)
    return absolute(name)
