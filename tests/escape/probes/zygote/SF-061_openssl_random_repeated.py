'''
id = "SF-061"
name = "OpenSSL's random bytes repeated"
attempt = "Two runs draw the same bytes from OpenSSL, after a preloaded module drew some."
severity = "critical"
proven_open = "user"
open_mode = "zygote-twins"
runs = 2
through = "one-sandbox"
needs = ["user-namespaces"]
set = ["python.path=[\"{MODULES}\"]", "python.preload=[\"drawn_before\"]"]

[[expect]]
text = ["differs or first run"]
'''

import ssl


def attempt():
    compare_with_previous(ssl.RAND_bytes(16).hex())


run(attempt)
