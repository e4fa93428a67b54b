'''
id = "SF-163"
name = "become another user or group"
attempt = """
Each call that sets an id, with root's, nobody's and every id that the map of the user namespace shows, of another
worker for one: own ids may be set, and a call that mistakes another for its own gives the other's files and
processes."""
severity = "critical"
proven_open = "root"

[[expect]]
text = ["ids as they were"]
'''

SAME = 0xFFFFFFFF


def ids():
    return os.getresuid() + os.getresgid()


def candidates():
    found = {0, 1, 33, 999, 1000, 1001, 65533, 65534}
    try:
        with open("/proc/self/uid_map") as map:
            for line in map:
                inside, outside, count = (int(word) for word in line.split())
                found |= {inside, outside, (inside + count - 1) % SAME, (outside + count - 1) % SAME}
    except FileNotFoundError:
        pass
    return sorted(found)


def attempt():
    # Each with its number of arguments: setfsuid and setfsgid, setuid and setgid, setreuid and setregid,
    # setresuid and setresgid.
    calls = [
        (number(122, 151), 1),
        (number(123, 152), 1),
        (number(106, 144), 1),
        (number(105, 146), 1),
        (number(114, 143), 2),
        (number(113, 145), 2),
        (number(119, 149), 3),
        (number(117, 147), 3),
    ]
    before = ids()
    own = os.getuid()
    for other in candidates():
        if other == own:
            continue
        for call, count in calls:
            for index in range(count):
                arguments = [own] * count if count == 1 else [SAME] * count
                arguments[index] = other
                # In a child, because in the control the first success changes the ids for good.
                child = os.fork()
                if child == 0:
                    syscall(call, *arguments)
                    result, _ = syscall(number(122, 151), SAME)
                    os._exit(1 if ids() != before or result == other else 0)
                if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1:
                    escaped("call %d took id %d" % (call, other))
                    return
    contained("ids as they were")


run(attempt)
