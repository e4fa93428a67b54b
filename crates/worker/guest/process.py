"""Sets up the streams, flags and hooks that guests see, and reseeds random state, which workers must not
share with their zygote."""

import errno
import gc
import io
import os
import sys

from . import wire

# From linux/memfd.h, because not every Python defines them.
MFD_CLOEXEC, MFD_NOEXEC_SEAL, MFD_EXEC = 0x1, 0x8, 0x10
MemberDescriptorType = type(type(sys.flags).isolated)


def open_streams():
    """Creates new stream objects, once for all workers. The interpreter created its streams while other files
    were open as descriptors 0, 1 and 2."""
    open_stdin()
    # Opened on pipes, as in a worker, because a stream caches whether it can seek.
    kept = [os.dup(number) for number in (1, 2)]
    pipe = os.pipe()
    for number in (1, 2):
        os.dup2(pipe[1], number)
        open_output(number)
    for number, copy in zip((1, 2), kept):
        os.dup2(copy, number)
    for number in (*kept, *pipe):
        os.close(number)


def open_stdin():
    raw = io.FileIO(0, "r", closefd=False)
    raw.name = "<stdin>"
    stream = io.TextIOWrapper(io.BufferedReader(raw), "utf-8", "surrogateescape")
    stream.mode = "r"
    sys.stdin = sys.__stdin__ = stream


def open_output(number):
    raw = io.FileIO(number, "w", closefd=False)
    raw.name = "<stdout>" if number == 1 else "<stderr>"
    # Line-buffered, so that lines printed before a kill are not lost.
    stream = io.TextIOWrapper(
        io.BufferedWriter(raw),
        "utf-8",
        "surrogateescape" if number == 1 else "backslashreplace",
        line_buffering=True,
    )
    stream.mode = "w"
    if number == 1:
        sys.stdout = sys.__stdout__ = stream
    else:
        sys.stderr = sys.__stderr__ = stream


def set_ordinary_flags(native):
    """Gives `sys.flags` the values of an ordinary `python3` with this environment.

    `-I -S` keep the zygote's startup safe until the jail is closed. `subprocess`, `multiprocessing` and
    `venv` read the flags and would start the guest's interpreters with `-I -S` too, which then find no
    packages."""
    kind = type(sys.flags)
    # Only the native half can create such an object. The members of the type are in the order of its fields.
    names = [name for name, item in vars(kind).items() if type(item) is MemberDescriptorType]
    if len(names) != kind.n_fields:
        raise RuntimeError("sys.flags of this Python has unknown fields")
    flags = {name: getattr(sys.flags, name) for name in names}
    for name in ("isolated", "no_site", "no_user_site", "ignore_environment", "safe_path"):
        if name in flags:
            flags[name] = type(flags[name])(0)
    if os.environ.get("PYTHONDONTWRITEBYTECODE"):
        flags["dont_write_bytecode"] = 1
        sys.dont_write_bytecode = True
    native.set_flags(wire.dumps(list(flags.values())))


class BreakpointHook:
    """Calls the function that `PYTHONBREAKPOINT` names, like the interpreter's own hook, which ignores the
    variable under `-I`."""

    @property
    def __call__(self):
        """Returns the function without a frame of this class, so that a debugger stops in the guest's own
        code."""
        path = os.environ.get("PYTHONBREAKPOINT") or "pdb.set_trace"
        if path == "0":
            return ignore
        module, dot, name = path.rpartition(".")
        # As in the interpreter's hook, a name alone is a builtin, and a name that begins with a dot is
        # invalid.
        if module or not dot:
            module = module or "builtins"
            try:
                __import__(module)
                return getattr(sys.modules[module], name)
            except (AttributeError, ImportError):
                pass
        from warnings import warn

        warn('Ignoring unimportable $PYTHONBREAKPOINT: "%s"' % path, RuntimeWarning, stacklevel=2)
        return ignore


def ignore(*args, **kwargs):
    pass


def follow_breakpoints():
    sys.breakpointhook = sys.__breakpointhook__ = BreakpointHook()


def seal_memory_files():
    """Makes `os.memfd_create` create files that can never be executed, unless the caller chooses explicitly.
    The filter allows no other files, and cannot add the flag. Linux before 6.3 does not support such
    files."""
    create = getattr(os, "memfd_create", None)
    if create is None:
        return

    def memfd_create(name, flags=MFD_CLOEXEC):
        if isinstance(flags, int) and not flags & (MFD_NOEXEC_SEAL | MFD_EXEC):
            try:
                return create(name, flags | MFD_NOEXEC_SEAL)
            except OSError as error:
                if error.errno != errno.EINVAL:
                    raise
        return create(name, flags)

    memfd_create.__doc__ = create.__doc__
    memfd_create.__module__ = create.__module__
    os.memfd_create = memfd_create


# Modules with random state that a fork copies, and how a worker reseeds them. `random` reseeds itself after a
# fork. OpenSSL and `tempfile` reseed when the process id changes, and a worker's id always differs from the
# zygote's. Generators that ask the kernel need nothing. That leaves numpy's global generator,
# multiprocessing's authentication key, which is created on import, and generators of packages.
RESEEDED = {
    "numpy.random": lambda module: module.seed(),
    "multiprocessing.process": lambda module: setattr(
        module.current_process(), "authkey", os.urandom(32)
    ),
}
# The generators that preloaded packages have created, each with the function that reseeds it.
GENERATORS = []


def note_generators():
    """Finds the generators that preloaded packages have created. A generator does not show whether its seed
    was chosen on purpose, so workers reseed them all."""
    kinds = {}
    inherited = set()
    if "_random" in sys.modules:
        kinds[sys.modules["_random"].Random] = reseed_python
        inherited.add(id(getattr(sys.modules.get("random"), "_inst", None)))
    numpy = sys.modules.get("numpy.random")
    # Older versions have only the global generator.
    if hasattr(numpy, "BitGenerator"):
        kinds[numpy.BitGenerator] = reseed_numpy
        # Programs create further generators from a seed sequence.
        kinds[numpy.SeedSequence] = numpy.SeedSequence.__init__
        bits = getattr(numpy.mtrand._rand, "_bit_generator", None)
        inherited.update((id(bits), id(getattr(bits, "_seed_seq", None))))
    if not kinds:
        return
    every = tuple(kinds)
    # By type, because reading the class of a proxy may run arbitrary code.
    found = [item for item in gc.get_objects() if issubclass(type(item), every)]
    for item in found:
        renew = next(kinds[kind] for kind in every if issubclass(type(item), kind))
        try:
            renew(item)
        except Exception:
            # A package's own class, which is constructed in another way.
            continue
        if id(item) not in inherited:
            GENERATORS.append((renew, item))


def reseed_python(generator):
    # A package may override `seed` with arbitrary code.
    sys.modules["_random"].Random.seed(generator)
    if getattr(generator, "gauss_next", None) is not None:
        generator.gauss_next = None


def reseed_numpy(generator):
    generator.state = type(generator)().state


def needs_seed():
    """Returns whether `reseed` has something to do."""
    return bool(GENERATORS) or not RESEEDED.keys().isdisjoint(sys.modules)


def reseed():
    """Reseeds the random number generators of this worker."""
    for name, renew in RESEEDED.items():
        module = sys.modules.get(name)
        if module is not None:
            renew(module)
    for renew, generator in GENERATORS:
        renew(generator)


def reseed_copy():
    """Reseeds a worker that was restored from another's memory. Its process id is the same, so packages do
    not detect the copy. Generators that the guest has created continue their sequence."""
    reseed()
    modules = sys.modules
    if "random" in modules:
        modules["random"].seed()
    if "tempfile" in modules:
        modules["tempfile"]._name_sequence = None
    if "_ssl" in modules:
        # OpenSSL mixes these bytes into its pool, and the generators of all threads reseed.
        modules["_ssl"].RAND_add(os.urandom(32), 0.0)
