"""The policy of an executor: the caller's, with the agent's imports, interpreter and time limit."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Union

from smolagents.local_python_executor import MAX_EXECUTION_TIME_SECONDS

from sandfork import Policy
from sandfork._policy import policy_of
from sandfork._tools import check_seconds

from ._imports import import_patterns

PolicySource = Union[str, "os.PathLike[str]", Mapping[str, Any], Policy, None]

# The longest time that a policy accepts; used for "no limit".
_LONGEST_SECONDS = 720 * 3600


class FromPolicy:
    """The type of the default `timeout_seconds`, which selects the policy's limit."""

    def __repr__(self) -> str:
        return "FROM_POLICY"


FROM_POLICY = FromPolicy()


def executor_policy(
    source: PolicySource,
    authorized: list[str],
    interpreter: str | None,
    timeout_seconds: float | FromPolicy | None,
) -> Policy:
    """Returns a policy that extends `source` with the agent's settings.

    Without `source`, the default time limit is that of the local executor.
    """
    if not isinstance(timeout_seconds, FromPolicy):
        timeout_seconds = check_seconds(timeout_seconds, "timeout_seconds")
    tables = _tables(source)
    if source is None and isinstance(timeout_seconds, FromPolicy):
        timeout_seconds = MAX_EXECUTION_TIME_SECONDS
    imports = import_patterns(authorized)
    if imports is not None:
        # If the policy lists imports too, both lists apply, without duplicates.
        listed = tables.get("imports", {}).get("allow", ())
        if isinstance(listed, Mapping):
            added = sorted({*listed.get("add", ()), *imports})
            tables["imports"] = {"allow": {**listed, "add": added}}
        else:
            tables["imports"] = {"allow": sorted({*listed, *imports})}
    if interpreter:
        tables["python"] = {**tables.get("python", {}), "interpreter": interpreter}
    if not isinstance(timeout_seconds, FromPolicy):
        seconds = _LONGEST_SECONDS if timeout_seconds is None else timeout_seconds
        # The CPU limit is raised to match.
        tables["limits"] = {**tables.get("limits", {}), "wall": _duration(seconds)}
    return Policy(**tables)


def _tables(source: PolicySource) -> dict[str, Any]:
    if source is None:
        return {}
    if isinstance(source, Policy):
        return source.tables()
    if isinstance(source, Mapping):
        # Copied in JSON types, so that a saved agent can store it.
        return policy_of(source).tables()
    return {"extends": source}


def _duration(seconds: float) -> str:
    return f"{max(1, round(min(seconds, _LONGEST_SECONDS) * 1000))}ms"
