"""The imports that an agent requests: names of modules, or of distributions in the syntax of `pip
install`."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from smolagents.local_python_executor import MAX_EXECUTION_TIME_SECONDS, InterpreterError
from smolagents.utils import BASE_BUILTIN_MODULES

from sandfork import Sandbox

INSTALLED, AUTHORIZED = "installed", "authorized"

# Runs in the sandbox, which may use another interpreter. Import restrictions of the policy do not apply,
# because the namespace is not named `__main__`.
_LOOK_UP = """\
from importlib import util
for name, wants_version in names:
    version = None
    try:
        is_installed = util.find_spec(name.partition(".")[0]) is not None
    except (ImportError, ValueError):
        is_installed = False
    if wants_version or not is_installed:
        from importlib import metadata
        try:
            version = metadata.version(name)
            is_installed = True
        except Exception:
            pass
    found.append((is_installed, version))
"""


class Imports:
    """The modules that code may import, and the packages that must be installed for it."""

    def __init__(
        self, additional: Sequence[str] | None, authorized: Sequence[str] | None, mode: str | None
    ) -> None:
        if mode not in (None, INSTALLED, AUTHORIZED):
            raise ValueError(f'imports is {mode!r}: give "{INSTALLED}" or "{AUTHORIZED}"')
        self.required = [
            *_names(authorized, "additional_authorized_imports"),
            *_names(additional, "additional_imports"),
        ]
        if mode is None:
            mode = INSTALLED if authorized is None or additional is not None else AUTHORIZED
        self.can_be_installed = additional is not None
        self.are_listed = mode == AUTHORIZED
        self.authorized = (
            authorized_imports(_plain(name) for name in self.required) if self.are_listed else ["*"]
        )

    def require(self, sandbox: Sandbox) -> None:
        """Raises `InterpreterError` if a required import is not installed in the sandbox."""
        missing = self.missing(sandbox)
        if missing:
            kind, remedy = _WORDING[self.are_listed]
            raise InterpreterError(
                f"Non-installed {kind}: {', '.join(missing)}. Please install these modules into "
                f"{sandbox.info.python.environment} or remove them from the {remedy}."
            )

    def packages(self) -> list[str]:
        """Returns the requirements that provide all required imports."""
        named = dict.fromkeys(_distribution(name) for name in self.required)
        return [name for name in named if name is not None]

    def missing(self, sandbox: Sandbox) -> list[str]:
        """Returns the required imports that are not installed in the sandbox."""
        names = [name for name in dict.fromkeys(self.required) if name.split(".")[0] != "*"]
        if not names:
            return []
        wanted = [(_plain(name), _specifier(name) is not None) for name in names]
        space = {"__name__": "sandfork_imports", "names": wanted}
        code = f"(lambda x: exec({_LOOK_UP!r}, {{**{space!r}, 'found': x}}) or x)([])"
        # With a separate timeout, because that of the agent's code may be short.
        looked_up = sandbox.run(code, timeout=MAX_EXECUTION_TIME_SECONDS)
        if looked_up.status != "ok":
            error = looked_up.error
            raise InterpreterError(f"the imports could not be looked up: {error and error.value}")
        checked = [_missing(name, *found) for name, found in zip(names, looked_up.value)]
        return [name for name in checked if name is not None]


# Modules whose distribution has another name. Installing the module's name would fail, or install another
# distribution.
_DISTRIBUTIONS = {
    "attr": "attrs",
    "bs4": "beautifulsoup4",
    "Crypto": "pycryptodome",
    "cv2": "opencv-python-headless",
    "dateutil": "python-dateutil",
    "docx": "python-docx",
    "dotenv": "python-dotenv",
    "fitz": "PyMuPDF",
    "PIL": "pillow",
    "pptx": "python-pptx",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "yaml": "PyYAML",
}


def _distribution(name: str) -> str | None:
    """Returns the requirement that provides a module or distribution; `None` for a module of the standard
    library, and for an invalid name."""
    plain = _plain(name)
    module, dot, _ = plain.partition(".")
    if module in sys.stdlib_module_names or _requirement(module) is None:
        return None
    versions = "" if dot else name[len(plain) :]
    return _DISTRIBUTIONS.get(module, module) + versions


# The wording of error messages; that for authorized imports is the local executor's.
_WORDING = {
    True: ("authorized modules", "authorized imports list"),
    False: ("additional imports", "additional imports"),
}


def authorized_imports(additional: Iterable[str]) -> list[str]:
    """Returns the imports that code may use: smolagents' base modules and `additional`."""
    return sorted({*BASE_BUILTIN_MODULES, *additional})


def import_patterns(authorized: Iterable[str]) -> list[str] | None:
    """Returns the policy's `imports.allow`, or `None` if every import is authorized."""
    patterns: set[str] = set()
    for name in authorized:
        parts = name.split(".")
        if parts[0] == "*":
            return None
        if "*" in parts:
            parts = parts[: parts.index("*") + 1]
        patterns.add(".".join(parts))
    return sorted(patterns)


def _names(given: Sequence[str] | None, parameter: str) -> list[str]:
    if isinstance(given, str):
        raise ValueError(f"{parameter} is the text {given!r}: give a list of names")
    names = list(given or ())
    if not all(isinstance(name, str) for name in names):
        raise ValueError(f"{parameter} is {names!r}: give texts, each the name of a module or a distribution")
    return names


def _requirement(name: str) -> Requirement | None:
    """Parses a name in the syntax of `pip install`; `None` for a pattern such as `numpy.*`."""
    try:
        return Requirement(name)
    except InvalidRequirement:
        return None


def _plain(name: str) -> str:
    """Returns the name without version, extras and markers."""
    requirement = _requirement(name)
    return name if requirement is None else requirement.name


def _specifier(name: str) -> SpecifierSet | None:
    """Returns the required versions; `None` for any."""
    requirement = _requirement(name)
    return None if requirement is None else requirement.specifier or None


def _missing(name: str, is_installed: bool, version: str | None) -> str | None:
    """Returns the name for an error message if the installed version does not satisfy the requirement."""
    specifier = _specifier(name)
    if not is_installed or (specifier is not None and version is None):
        return name
    if specifier is None or version is None or specifier.contains(version, prereleases=True):
        return None
    return f"{name} ({version} is installed)"
