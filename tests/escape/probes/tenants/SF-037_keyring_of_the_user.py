'''
id = "SF-037"
name = "meet in a keyring"
attempt = "One tenant adds a key to its user's keyring, and the other searches there for it."
severity = "high"
proven_open = "user"
open_mode = "two-tenants"
through = "two-tenants"
runs = 2

[[expect]]
errno = ["EPERM"]
'''

import ctypes

ADD_KEY, KEYCTL = number(248, 217), number(250, 219)
USER_KEYRING, SEARCH, UNLINK = -4, 10, 9
KIND, NAME = ctypes.c_char_p(b"user"), ctypes.c_char_p(b"sandfork_sf037")


def hold():
    checked(ADD_KEY, KIND, NAME, ctypes.c_char_p(b"meet"), 4, USER_KEYRING)
    contained("holds")


def visit():
    key = checked(KEYCTL, SEARCH, USER_KEYRING, KIND, NAME, 0)
    checked(KEYCTL, UNLINK, key, USER_KEYRING)
    escaped("found key %d" % key)


tenants(hold, visit)
