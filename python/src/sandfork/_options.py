"""Validates arguments and converts them for the link."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import IO, Any, TypeVar, Union

from ._conversation import Callbacks, OnResult, OnText
from ._environment import Environment
from ._exceptions import RequestError, ValueTooLarge
from ._frames import MAX_PAYLOAD
from ._policy import Policy, policy_of
from ._supervisor import current_directory
from ._tools import check_name
from ._values import is_unicode

F = TypeVar("F")
PolicyLike = Union[str, "os.PathLike[str]", Mapping[str, Any], Policy]
Stdin = Union[str, bytes, IO[Any]]


def policy_choice(policy: PolicyLike) -> dict[str, Any]:
    """Returns the `policy` field of an `open` message, with the interpreter to use if the policy names
    none."""
    interpreter, directory = own_interpreter(), current_directory()
    ours: dict[str, Any] = {} if interpreter is None else {"interpreter": interpreter}
    if isinstance(policy, Mapping):
        policy = policy_of(policy)
    if isinstance(policy, Policy):
        return {"toml": policy.to_toml(), "directory": directory, "label": "Policy", **ours}
    if not isinstance(policy, (str, os.PathLike)):
        kind = type(policy).__name__
        raise RequestError(
            f"policy is of type {kind}: give a name, the path of a file, a Policy, or a dict of its tables"
        )
    name = os.fspath(policy)
    if not isinstance(policy, str) and os.sep not in name:
        # A path object is a path even if a built-in policy has the same name.
        name = os.path.join(os.curdir, name)
    # The current directory is sent, because the supervisor may have started in another one.
    return {"name": name, "directory": directory, **ours}


def package_overrides(packages: Sequence[str] | None, environment: str | Environment | None) -> list[str]:
    """Returns the policy overrides that give the guest these packages, or the packages of this
    environment."""
    if packages is not None and environment is not None:
        raise RequestError("an environment has packages of its own: give `packages` or `environment`")
    if environment is not None:
        name = environment.name if isinstance(environment, Environment) else environment
        if not isinstance(name, str):
            raise RequestError(f"environment is of type {type(name).__name__}: give a name or an Environment")
        return [f"python.environment={name}"]
    if packages is None:
        return []
    # A JSON list of strings is valid TOML.
    listed = json.dumps(list(checked_argv(packages, "packages")))
    return [f"python.packages={listed}", "environments.create=true"]


def own_interpreter() -> str | None:
    """Returns the Python that runs this process, whose packages the caller expects in a sandbox.

    `None` if a sandbox cannot use it: an implementation other than CPython, a free-threaded build, or a
    frozen program or one that embeds Python, without a separate interpreter.
    """
    if sys.implementation.name != "cpython" or "t" in sys.abiflags:
        return None
    program = sys.executable or ""
    if not os.path.basename(program).startswith("python"):
        # A program that embeds Python, such as uwsgi, reports itself or nothing here.
        version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
        program = os.path.join(sys.prefix, "bin", version)
        if not os.access(program, os.X_OK):
            return None
    return program if os.path.isabs(program) and is_unicode(program) else None


def source_of(code: object) -> bytes:
    """Encodes source as UTF-8. Raises `RequestError` if it cannot be encoded, or does not fit into a
    message."""
    if not isinstance(code, str):
        raise RequestError(f"the code is of type {type(code).__name__}: give a str")
    source = utf_8(code, "the code")
    if len(source) > MAX_PAYLOAD:
        raise ValueTooLarge(
            f"the code is {len(source)} bytes long, more than the {MAX_PAYLOAD} of a message: write it "
            "to a file of the session and import it"
        )
    return source


def checked_path(path: object) -> str:
    """Returns a path as text. Raises `RequestError` for bytes, which cannot be sent."""
    name = os.fspath(path) if isinstance(path, os.PathLike) else path
    if not isinstance(name, str) or "\0" in name:
        raise RequestError(f"{path!r} cannot be a path: give a str without NUL")
    return name


def absolute(path: object) -> str:
    """Makes a path absolute, because the supervisor may have another current directory."""
    try:
        return os.path.abspath(checked_path(path))
    except OSError as error:
        raise RequestError(
            f"the current directory cannot be found: {error.strerror}; change to another one"
        ) from None


def utf_8(text: str, name: str, errors: str = "strict") -> bytes:
    """Encodes a text as UTF-8. `name` is its name in error messages."""
    try:
        return text.encode("utf-8", errors)
    except UnicodeEncodeError as error:
        lone = f"U+{ord(text[error.start]):04X}"
        raise RequestError(f"{name} has a lone surrogate, {lone}, which UTF-8 has not") from None


def checked_text(text: str | None, name: str) -> str | None:
    """Returns an optional text. `name` is its name in error messages."""
    if text is not None and not isinstance(text, str):
        raise RequestError(f"{name} is of type {type(text).__name__}: give a str")
    return text


def checked_count(number: int, name: str, most: int) -> int:
    """Returns an integer from 0 to `most`. `name` is its name in error messages."""
    if not isinstance(number, int) or isinstance(number, bool):
        raise RequestError(f"{name} is of type {type(number).__name__}: give a whole number")
    if not 0 <= number <= most:
        raise RequestError(f"{name} is {number}: give a number from 0 to {most}")
    return int(number)


def checked_function(function: F, name: str) -> F:
    """Returns an optional function. `name` is its name in error messages."""
    if function is not None and not callable(function):
        raise RequestError(f"{name} is of type {type(function).__name__}: give a function")
    return function


def callbacks(
    on_stdout: OnText | None = None, on_stderr: OnText | None = None, on_result: OnResult | None = None
) -> Callbacks:
    """Returns the callbacks for a cell's output."""
    return Callbacks(
        checked_function(on_stdout, "on_stdout"),
        checked_function(on_stderr, "on_stderr"),
        checked_function(on_result, "on_result"),
    )


def checked_argv(argv: Iterable[str], name: str = "argv") -> tuple[str, ...]:
    """Returns arguments as a tuple of strings. `name` is their name in error messages."""
    if isinstance(argv, str) or not isinstance(argv, Iterable):
        raise RequestError(f"{name} is a {type(argv).__name__}: give a list of strings")
    arguments = tuple(argv)
    for argument in arguments:
        if not isinstance(argument, str):
            raise RequestError(f"{name} has a {type(argument).__name__}: give strings")
    return arguments


def checked_variables(variables: Mapping[str, Any] | None) -> dict[str, Any]:
    """Returns variables by normalized name. Raises `RequestError` if a name is not an identifier."""
    if variables is None:
        return {}
    if not isinstance(variables, Mapping):
        raise RequestError(f"variables is of type {type(variables).__name__}: give a dict")
    return {check_name(name, "a variable"): value for name, value in variables.items()}


def read_source(path: str | os.PathLike[str]) -> str:
    """Reads a source file of the host and decodes it as Python does."""
    import tokenize

    with tokenize.open(path) as file:
        return file.read()
