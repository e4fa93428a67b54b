'''
id = "KS-011"
name = "splice from a file"
attempt = """
splice one page of a library file into a pipe: puts page-cache pages in reach (Dirty Pipe, Copy
Fail primitives)."""
severity = "high"
refs = "CVE-2022-0847, CVE-2026-31431"
proven_open = "user"

[[expect]]
errno = ["EINVAL", "EPERM", "ENOSYS"]
'''


def attempt():
    library = os.open(os.__file__, os.O_RDONLY)
    _, write_end = os.pipe()
    result, code = syscall(number(275, 76), library, None, write_end, None, 64, 0)
    if result > 0:
        escaped("spliced %d bytes" % result)
    else:
        contained(errno_name(code))


run(attempt)
