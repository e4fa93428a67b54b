"""Describes a guest's exception for the supervisor."""

import builtins
import errno
import os
import sys
from _thread import get_ident

from .cell import MAX_TEXT, SOURCES, class_name, cut, show_lines
from .claims import MAX_CAUSES, attribute, places_of

# The maximum number of traceback frames that are shown, as many as Python itself prints.
MAX_FRAMES = 1000

# Up to CPython 3.12 only the interpreter's own display prints "Did you mean". Later versions of `traceback`
# do too.
SUGGESTS = (3, 10) <= sys.version_info < (3, 13)
MAX_SUGGESTION = 200

INTERRUPTED = "<interrupted while reading the message>"


def describe_error(error):
    message = safe_str(error)
    number = attribute(error, "errno")
    if type(number) is not int or not issubclass(type(error), OSError) or abs(number) >= 1 << 31:
        number = None
    note = missing_package(error) or missing_name(error, message) or fence(error) or no_network(error)
    if not note and number == errno.EACCES and places_of(error.__traceback__)[0]:
        note = not_executable(attribute(error, "filename"))
    if number is None and is_unmapped(error, message):
        note = not_executable(message.partition(":")[0])
        number = None if note else errno.ENOMEM
    # If converting the exception was interrupted, it is not converted again.
    text = last_line(error, message) if message is INTERRUPTED else format_traceback(error)
    described = {
        "name": class_name(error),
        "message": cut(message + note, MAX_TEXT),
        "traceback": cut(add_note(text, note), MAX_TEXT),
    }
    if number is not None:
        described["errno"] = number
    return described


def missing_package(error):
    """Returns how to install a package that the guest could not import; empty for other errors."""
    name = attribute(error, "name")
    if not issubclass(type(error), ModuleNotFoundError) or type(name) is not str:
        return ""
    if "." in name or name in getattr(sys, "stdlib_module_names", ()):
        return ""
    if name == "IPython" and hasattr(builtins, "display"):
        return (
            " (`display`, `get_ipython` and magics need no import here; IPython's classes, such as HTML, are in the "
            "packages of %s once it is installed there)" % sys.prefix
        )
    from .editable import hidden_directory

    try:
        hidden = hidden_directory(name)
    except Exception:
        # The guest may have replaced what this function reads.
        hidden = None
    if hidden is not None:
        return (
            " (the packages of %s lead to %s, which this sandbox does not show: name that directory in `path` under "
            "[python] in the policy)" % (sys.prefix, hidden)
        )
    return (
        " (this sandbox has the packages of %s: name others as `packages` under [python] in the policy; nothing is "
        "installed while code runs)"
        % sys.prefix
    )


def missing_name(error, message):
    """Returns a note on IPython's names for earlier inputs and values; empty for other errors."""
    parts = message.split("'", 2)
    if not issubclass(type(error), NameError) or len(parts) < 3:
        return ""
    name = parts[1]
    if name in ("In", "Out", "_", "__", "___") or (name[:1] == "_" and name[1:].isdigit()):
        return " (no earlier inputs and values are kept, but for a session's last one, which is `_`)"
    return ""


def fence(error):
    """Returns the remedy for code that contains lines of Markdown; empty for other errors."""
    line = attribute(error, "text") if issubclass(type(error), SyntaxError) else None
    if type(line) is not str or not line.lstrip().startswith("```"):
        return ""
    return " (a line with ``` is Markdown: pass the Python between two of them)"


def no_network(error):
    """Returns the remedy for a refused internet socket; empty for other errors."""
    if not issubclass(type(error), OSError):
        return ""
    from .network import HINT, is_of_lookup, is_refused, made_socket

    # Libraries wrap the exception in their own.
    for _ in range(MAX_CAUSES):
        if error is None or HINT in safe_str(error):
            break
        if made_socket(error) or (is_of_lookup(error) and is_refused()):
            return " (%s)" % HINT
        error = attribute(error, "__cause__") or attribute(error, "__context__")
    return ""


def is_unmapped(error, message):
    """Returns whether the dynamic loader could not map a library (dlopen(3)). Its exceptions have no
    errno."""
    if not issubclass(type(error), (ImportError, OSError)):
        return False
    return "failed to map segment from shared object" in message


def not_executable(path):
    """Returns the setting that allows a program or library to be used at this path; empty unless the mount is
    noexec."""
    try:
        # The file may be gone by now, with its temporary directory.
        while path not in ("", "/") and not os.access(path, os.F_OK):
            path = os.path.dirname(path)
        refused = os.statvfs(path).f_flag & os.ST_NOEXEC
    except (OSError, TypeError, ValueError):
        return ""
    if not refused:
        return ""
    return " (no program or library in this directory can be run; `filesystem.work_exec = true` allows it in /work)"


def add_note(traceback, note):
    return traceback.rstrip("\n") + note + "\n" if note else traceback


def format_traceback(error):
    """Formats the traceback as Python does, without the frames of this package."""
    try:
        import linecache
        import traceback

        show_lines(*[name for name in SOURCES if name not in linecache.cache])
        trace = traceback.TracebackException(type(error), error, last_frames(error.__traceback__))
        keep_guest_frames(traceback, trace, set())
        if SUGGESTS:
            trace._str += suggestion(error, trace._str)
        return "".join(trace.format())
    except MemoryError:
        # If Python's library has no bytecode, as in Docker's Python images, importing a module compiles it,
        # which can take more memory than the reserve.
        return plain_traceback(error)
    except BaseException:
        return last_line(error, safe_str(error))


class OwnDisplay:
    """Replaces `sys.stderr` while this thread displays an exception. Output of other threads passes
    through."""

    def __init__(self, other):
        self.thread, self.other, self.text = get_ident(), other, ""

    def write(self, text):
        if get_ident() == self.thread:
            self.text += text
        else:
            self.other.write(text)

    def flush(self):
        pass


def suggestion(error, message):
    """Returns the suggestion that the interpreter's own display appends to an exception's message, or an
    empty string."""
    kind = type(error)
    # The interpreter makes no suggestions for guest classes.
    if kind not in (NameError, AttributeError, ImportError) or type(message) is not str or not message:
        return ""
    # `traceback` of CPython 3.12 has already appended some suggestions.
    if message != str(error):
        return ""
    # A new exception, without `__cause__`, notes or a guest's `__str__`.
    alone = kind(message)
    for name in ("name", "obj", "name_from"):
        if hasattr(error, name):
            setattr(alone, name, getattr(error, name))
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    alone.__traceback__ = trace
    own = vars(sys)
    before = {name: own[name] for name in ("stderr", "tracebacklimit") if name in own}
    display = OwnDisplay(before.get("stderr"))
    try:
        sys.tracebacklimit, sys.stderr = 0, display
        sys.__excepthook__(kind, alone, trace)
    except Exception:
        return ""
    finally:
        for name in ("stderr", "tracebacklimit"):
            own.pop(name, None)
        own.update(before)
    before, _, after = display.text.rstrip("\n").partition(message)
    is_suggestion = before == kind.__name__ + ": " and after.startswith(". Did you ") and "\n" not in after
    return after if is_suggestion and len(after) <= MAX_SUGGESTION else ""


def plain_traceback(error):
    """Formats the traceback without source lines, which needs no module and hardly any memory."""
    lines, trace = ["Traceback (most recent call last):\n"], last_frames(error.__traceback__)
    while trace is not None:
        code = trace.tb_frame.f_code
        if not code.co_filename.startswith("<sandfork "):
            lines.append('  File "%s", line %s, in %s\n' % (code.co_filename, trace.tb_lineno, code.co_name))
        trace = trace.tb_next
    return "".join(lines) + last_line(error, safe_str(error))


def last_frames(trace):
    """Returns the last entries of a traceback: a guest that raises its recursion limit has a million frames,
    which take seconds."""
    ahead = trace
    for _ in range(MAX_FRAMES):
        if ahead is None:
            return trace
        ahead = ahead.tb_next
    while ahead is not None:
        trace, ahead = trace.tb_next, ahead.tb_next
    return trace


def last_line(error, message):
    return "%s: %s\n" % (class_name(error), message) if message else class_name(error) + "\n"


def keep_guest_frames(traceback, trace, seen):
    if trace is None or id(trace) in seen:
        return
    seen.add(id(trace))
    frames = [frame for frame in trace.stack if not frame.filename.startswith("<sandfork ")]
    trace.stack = traceback.StackSummary.from_list(frames[runner_frames(frames) :])
    # `exceptions` are the members of a group (PEP 654).
    for other in (trace.__cause__, trace.__context__, *(getattr(trace, "exceptions", None) or ())):
        keep_guest_frames(traceback, other, seen)


def runner_frames(frames):
    """Returns the number of frames before the guest's first that only run its coroutine."""
    for count, frame in enumerate(frames):
        if "/asyncio/" not in frame.filename:
            return count if frame.filename in SOURCES else 0
    return 0


def safe_str(error):
    try:
        return str(error)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BaseException as second:
        return "<%s while reading the message>" % class_name(second)
