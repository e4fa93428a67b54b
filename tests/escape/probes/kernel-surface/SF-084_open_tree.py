'''
id = "SF-084"
name = "hold a mount by a descriptor"
attempt = "open_tree(2) of the root: the first step to bind a mount elsewhere."
severity = "high"
proven_open = "user"
since = "5.2"

[[expect]]
errno = ["EPERM"]
'''

import ctypes

AT_FDCWD, OPEN_TREE_CLOEXEC = -100, 0o2000000


def attempt():
    tree = checked(428, AT_FDCWD, ctypes.c_char_p(b"/"), OPEN_TREE_CLOEXEC)
    escaped("descriptor %d" % tree)


run(attempt)
