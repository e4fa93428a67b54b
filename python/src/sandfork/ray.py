"""Batches on the nodes of a Ray cluster, with the interface of `sandfork.map`.

    import sandfork.ray

    for result in sandfork.ray.map(tasks):
        print(result.id, result.status)

An actor on each node keeps one supervisor and one warm interpreter. The driver sends it chunks of tasks, at
most two in advance, and resends the chunks of a lost node to another. Ray does all scheduling.
"""

from __future__ import annotations

import asyncio
import json
import math
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import islice
from typing import Any

import ray
from ray.exceptions import ObjectLostError, RayActorError, RayTaskError, WorkerCrashedError

from ._async import async_map
from ._environment import Environment
from ._exceptions import RequestError, SupervisorDied
from ._map import MAX_JOBS
from ._options import PolicyLike
from ._tasks import Task, TaskLike, TaskResult, checked_tasks, prepared

# The target time of a chunk: long compared to an actor call, and short compared to a batch.
_CHUNK_SECONDS = 0.5
_MAX_OF_CHUNK = 1024
# An actor works on one chunk while the next is on its way.
_AHEAD = 2
# The batch fails when so many actors in a row are lost without a result.
_MAX_LOSSES = 3

_LOST = (RayActorError, ObjectLostError, WorkerCrashedError)


def map(
    tasks: Iterable[TaskLike],
    *,
    actors: int | None = None,
    jobs: int | None = None,
    policy: PolicyLike = "standard",
    packages: Sequence[str] | None = None,
    environment: str | Environment | None = None,
    timeout: float | None = None,
    ordered: bool = False,
) -> Iterator[TaskResult]:
    """Runs many tasks on the nodes of a Ray cluster, and yields a `TaskResult` for each, as `sandfork.map`
    does.

    - `actors`: the number of actors, which Ray spreads over the nodes. The default is one for each node that
      has processors.
    - `jobs`: the number of concurrent sandboxes of an actor, and of processors that Ray reserves for it. The
      default is the number of processors of the smallest node. The node's own limits may reduce it.
    - `policy`, `packages`, `environment`, `timeout`, `ordered`: as for `sandfork.map`. Policy files, and a
      task's `file`, are read on the node.

    Each task has exactly one result. If a node is lost, its unfinished tasks run again on another, so a
    program can run more than once. Three lost actors in a row without a result raise `SupervisorDied`.
    Uses the running Ray cluster, or that of `RAY_ADDRESS`, or a new one on this machine.
    """
    for name, number in ("actors", actors), ("jobs", jobs):
        if number is not None and (type(number) is not int or not 1 <= number <= MAX_JOBS):
            raise RequestError(f"{name} is {number!r}: give a number from 1 to {MAX_JOBS}, or None")
    options = {"policy": policy, "packages": packages, "environment": environment, "timeout": timeout}
    return _Batch(enumerate(checked_tasks(tasks)), actors, jobs, options, ordered).results()


class Runner:
    """Runs a batch of rows as tasks, for Ray Data:

        dataset.map_batches(sandfork.ray.Runner, fn_constructor_kwargs={"timeout": 5}, concurrency=4)

    Columns that are named like the fields of `Task` define the task. `None` values in a dict of `files`,
    `limits` or `expect` are ignored, because Arrow gives all rows of a column the same keys. The columns
    `status`, `verdict`, `stdout`, `stderr` and `result` are added: `result` is the JSON of
    `TaskResult.to_dict(compact=True)`. An instance keeps one supervisor for its lifetime.
    """

    def __init__(
        self,
        *,
        jobs: int | None = None,
        policy: PolicyLike = "standard",
        packages: Sequence[str] | None = None,
        environment: str | Environment | None = None,
        timeout: float | None = None,
    ) -> None:
        options = {"policy": policy, "packages": packages, "environment": environment, "timeout": timeout}
        self._node = _Node(jobs, options)
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="sandfork-runner", daemon=True).start()

    def __call__(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        known = [field.name for field in fields(Task) if field.name in batch]
        if not known:
            raise RequestError(f"no column is a key of a task, such as `code`: there are {', '.join(batch)}")
        rows = zip(*(batch[name] for name in known))
        tasks = [(index, _task(dict(zip(known, row)))) for index, row in enumerate(rows)]
        for index, task in tasks:
            prepared(task, index)
        results, failure = asyncio.run_coroutine_threadsafe(self._node.run(tasks), self._loop).result()
        if failure is not None:
            raise failure
        named = [
            replace(result, id=index if task.get("id") is None else task["id"])
            for result, (index, task) in zip(results, tasks)
        ]
        return {
            **batch,
            "status": [result.status for result in named],
            "verdict": [result.verdict for result in named],
            "stdout": [result.stdout for result in named],
            "stderr": [result.stderr for result in named],
            # In ASCII, because a guest may send lone surrogates, which Arrow rejects.
            "result": [json.dumps(result.to_dict(compact=True)) for result in named],
        }


def _task(row: dict[str, Any]) -> dict[str, Any]:
    """Converts a row to a task. Arrow gives all rows of a column of dicts the same keys: a key without a
    value belongs to another row."""
    task: dict[str, Any] = _plain(row)
    for name, value in task.items():
        if isinstance(value, dict):
            task[name] = {key: member for key, member in value.items() if member is not None}
    return task


def _plain(value: Any) -> Any:
    """Converts NumPy scalars and arrays in a value to Python scalars and lists."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return {key: _plain(member) for key, member in value.items()} if isinstance(value, dict) else value


class _Node:
    """The actor class: one supervisor that runs the driver's chunks."""

    def __init__(self, jobs: int | None, options: Mapping[str, Any]) -> None:
        self._jobs, self._options = jobs, options
        self._waiting: dict[int, asyncio.Future[TaskResult]] = {}
        self._pump: asyncio.Task[None] | None = None

    async def run(
        self, tasks: Sequence[tuple[int, TaskLike]]
    ) -> tuple[list[TaskResult], BaseException | None]:
        """Runs numbered tasks. Returns their results in order, whose `id` and `index` are the number, and the
        first exception if some tasks have no result."""
        if self._pump is None or self._pump.done():
            self._queue: asyncio.Queue[tuple[int, TaskLike]] = asyncio.Queue()
            self._pump = asyncio.create_task(self._run_all())
        for number, task in tasks:
            self._waiting[number] = asyncio.get_running_loop().create_future()
            self._queue.put_nowait((number, task))
        waiting = (self._waiting[number] for number, _ in tasks)
        answers = await asyncio.gather(*waiting, return_exceptions=True)
        failures = (answer for answer in answers if isinstance(answer, BaseException))
        return [answer for answer in answers if isinstance(answer, TaskResult)], next(failures, None)

    async def _run_all(self) -> None:
        try:
            async for result in async_map(self._taken(), jobs=self._jobs, **self._options):
                answer = self._waiting.pop(result.id)
                answer.set_result(replace(result, index=result.id))
        except Exception as error:
            for answer in self._waiting.values():
                answer.set_exception(error)
            self._waiting.clear()

    async def _taken(self) -> AsyncIterator[TaskLike]:
        while True:
            number, task = await self._queue.get()
            yield _with_id(task, number)


def _without_file(task: TaskLike) -> TaskLike:
    """Returns the task for validation on the driver, without `file`, which is read on the node."""
    values = vars(task) if isinstance(task, Task) else task
    if not isinstance(values, Mapping) or values.get("file") is None:
        return task
    rest = {name: value for name, value in values.items() if name != "file" and value is not None}
    return {"code": "", **rest}


def _with_id(task: TaskLike, number: int) -> TaskLike:
    if isinstance(task, str):
        return Task(task, id=number)
    return replace(task, id=number) if isinstance(task, Task) else {**task, "id": number}


@dataclass
class _Chunk:
    """The tasks of one call of an actor. An actor's first chunk is empty: its end means that Ray has
    scheduled the actor."""

    actor: Any
    tasks: list[tuple[int, TaskLike]]
    begun: float


class _Batch:
    """The state of a batch on the driver."""

    def __init__(
        self,
        tasks: Iterator[tuple[int, TaskLike]],
        actors: int | None,
        jobs: int | None,
        options: Mapping[str, Any],
        ordered: bool,
    ) -> None:
        if not ray.is_initialized():
            ray.init()
        alive = [node["Resources"].get("CPU", 0) for node in ray.nodes() if node["Alive"]]
        processors = [int(count) for count in alive if count >= 1]
        most = max(processors, default=0)
        if not processors or (jobs or 0) > most:
            raise RequestError(f"jobs is {jobs}: the largest node of the Ray cluster has {most} processors")
        self._jobs = jobs or min(processors)
        self._count = actors or len(processors)
        self._options, self._ordered = options, ordered
        self._tasks = tasks
        self._actors: list[Any] = []
        self._running: dict[Any, _Chunk] = {}
        self._lost: deque[list[tuple[int, TaskLike]]] = deque()
        self._losses = 0
        self._size = self._jobs
        # The identifiers of the tasks that have no result yet, by number.
        self._names: dict[int, Any] = {}
        # With `ordered`, the results that wait for an earlier one.
        self._early: dict[int, TaskResult] = {}
        # The exception that ended the batch, and the number of the first task without a result.
        self._failure: BaseException | None = None
        self._failed_at: float = math.inf
        self._ended = False

    def results(self) -> Iterator[TaskResult]:
        """Yields the results, and ends the actors with the iterator."""
        following = 0
        try:
            for _ in range(self._count):
                self._start()
            while not self._ended or self._names:
                for result in self._finished():
                    if not self._ordered:
                        yield self._named(result)
                        continue
                    self._early[result.index] = result
                    while following in self._early:
                        yield self._named(self._early.pop(following))
                        following += 1
                self._fill()
            if self._failure is not None:
                raise self._failure
        finally:
            # Includes actors that Ray has not scheduled yet.
            for actor in {*self._actors, *(chunk.actor for chunk in self._running.values())}:
                ray.kill(actor)

    def _start(self) -> None:
        # Without restarts by Ray, because this module knows which tasks to resend. An actor that Ray cannot
        # schedule, for example after the loss of a node, gets no tasks.
        options = {"num_cpus": self._jobs, "max_restarts": 0, "scheduling_strategy": "SPREAD"}
        self._send(ray.remote(**options)(_Node).remote(self._jobs, self._options), [])

    def _send(self, actor: Any, tasks: list[tuple[int, TaskLike]]) -> None:
        self._running[actor.run.remote(tasks)] = _Chunk(actor, tasks, time.monotonic())

    def _fill(self) -> None:
        for actor in self._actors:
            ahead = sum(chunk.actor is actor for chunk in self._running.values())
            while ahead < _AHEAD and (tasks := self._next_tasks()):
                self._send(actor, tasks)
                ahead += 1

    def _next_tasks(self) -> list[tuple[int, TaskLike]]:
        if self._lost:
            return self._lost.popleft()
        # The number of results that wait for an earlier one is bounded like the number of running tasks.
        if self._ended or len(self._early) >= self._count * _AHEAD * self._size:
            return []
        tasks = []
        try:
            for number, task in islice(self._tasks, self._size):
                name = prepared(_without_file(task), number).id
                tasks.append((number, task))
                self._names[number] = name
        except Exception as error:
            # Raised after the results of the tasks before it.
            self._failure = error
        self._ended = len(tasks) < self._size
        return tasks

    def _finished(self) -> list[TaskResult]:
        """Waits for the next chunk to end, and returns its results; none if its actor was lost."""
        [ended], _ = ray.wait(list(self._running), num_returns=1)
        chunk = self._running.pop(ended)
        try:
            results, failure = ray.get(ended)
        except _LOST as error:
            self._lose(chunk, error)
            return []
        except RayTaskError as error:
            raise (error.cause if isinstance(error.cause, Exception) else error) from None
        if not chunk.tasks:
            self._actors.append(chunk.actor)
            return []
        self._losses = 0
        pace = len(results) / max(time.monotonic() - chunk.begun, 1e-3)
        self._size = max(self._jobs, min(_MAX_OF_CHUNK, int(pace * _CHUNK_SECONDS)))
        if failure is not None:
            self._fail(chunk, {result.index for result in results}, failure)
        # Results after the failed task are dropped.
        return [result for result in results if result.index in self._names]

    def _fail(self, chunk: _Chunk, done: set[int], failure: BaseException) -> None:
        """Records a failure, so that the batch ends once all tasks before the failed one have results."""
        number = min(number for number, _ in chunk.tasks if number not in done)
        if number < self._failed_at:
            self._failure, self._failed_at = failure, number
        self._ended = True
        self._names = {number: name for number, name in self._names.items() if number < self._failed_at}

    def _lose(self, chunk: _Chunk, error: Exception) -> None:
        if chunk.tasks:
            self._lost.append(chunk.tasks)
        if chunk.tasks and chunk.actor not in self._actors:
            # The loss was counted when the actor's other chunk ended.
            return
        self._losses += 1
        if self._losses == _MAX_LOSSES:
            lost = f"{_MAX_LOSSES} actors in a row were lost without a result"
            raise SupervisorDied(f"{lost}: {error}") from error
        if chunk.tasks:
            self._actors.remove(chunk.actor)
        self._start()

    def _named(self, result: TaskResult) -> TaskResult:
        return replace(result, id=self._names.pop(result.index))
