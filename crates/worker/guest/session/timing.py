"""Implements `%time` and `%timeit`."""

import os
import re

# Options of `%timeit`, which may be combined.
OPTIONS = re.compile(r"-(?=\w)([tcqo]*)(?:([nrp])\s*(\d+)|v\s*([^\W\d]\w*))?(?:\s+|$)")


class TimeitResult:
    """The result of `%timeit -o`. Times are per loop, in seconds."""

    def __init__(self, loops, taken, digits):
        from statistics import mean, pstdev

        self.loops, self.repeat = loops, len(taken)
        self.all_runs, self.timings = taken, [each / loops for each in taken]
        self.best, self.worst = min(self.timings), max(self.timings)
        self.average, self.stdev = mean(self.timings), pstdev(self.timings)
        self.digits = digits

    def __str__(self):
        times = seconds(self.average, self.digits), seconds(self.stdev, self.digits)
        counts = self.repeat, "" if self.repeat == 1 else "s", self.loops, "" if self.loops == 1 else "s"
        return "%s +- %s per loop (mean +- std. dev. of %d run%s, %d loop%s each)" % (*times, *counts)

    def __repr__(self):
        return "<TimeitResult : %s>" % self


def timeit(line, body, namespace):
    """Implements `%timeit` for a line, or `%%timeit` for a cell after a line. Without `-r` it measures once,
    because a cell has a time limit."""
    from time import process_time
    from timeit import Timer, default_timer

    flags, options = "", {}
    found = OPTIONS.match(line)
    while found is not None:
        flags += found[1]
        options.update({found[2]: int(found[3])} if found[2] else {"v": found[4]} if found[4] else {})
        line = line[found.end() :]
        found = OPTIONS.match(line)
    code, setup = (line, "pass") if body is None else (body, line or "pass")
    timer = Timer(code, setup, process_time if "c" in flags else default_timer, namespace)
    repeat = max(1, options.get("r", 1))
    if options.get("n"):
        result = timer.repeat(repeat, options["n"]), options["n"]
    else:
        number, taken = timer.autorange()
        result = [taken, *(timer.repeat(repeat - 1, number) if repeat > 1 else ())], number
    result = TimeitResult(result[1], result[0], options.get("p", 3))
    if "q" not in flags:
        print(result)
    if "v" in options:
        namespace[options["v"]] = result
    return result if "o" in flags else None


def times():
    from time import perf_counter

    used = os.times()
    return used.user + used.children_user, used.system + used.children_system, perf_counter()


def print_times(began):
    user, system, wall = (now - then for now, then in zip(times(), began))
    total = user + system
    print("CPU times: user %s, sys: %s, total: %s" % tuple(map(seconds, (user, system, total))))
    print("Wall time: %s" % seconds(wall))


def seconds(count, digits=3):
    for unit, size in (("s", 1), ("ms", 1e-3), ("us", 1e-6)):
        if count >= size:
            return "%.*g %s" % (digits, count / size, unit)
    return "%.*g ns" % (digits, count * 1e9)
