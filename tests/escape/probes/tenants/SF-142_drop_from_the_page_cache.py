'''
id = "SF-142"
name = "drop the host's libraries from its memory"
attempt = """
POSIX_FADV_DONTNEED drops the pages of a shown file, so that all others read it from the disk again. The
probe uses a closed descriptor to see whether the kernel got the call."""
severity = "medium"
proven_open = "user"

[[expect]]
text = ["kept from the kernel"]
'''


def attempt():
    with open(os.__file__, "rb") as shown:
        descriptor = shown.fileno()
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    try:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    except OSError as error:
        escaped("the kernel answered " + errno_name(error.errno))
    else:
        contained("kept from the kernel")


run(attempt)
