'''
id = "SF-060"
name = "names of temporary files repeated"
attempt = "Two runs draw the same name for a temporary file, after a preloaded module drew one."
severity = "high"
proven_open = "user"
open_mode = "zygote-twins"
runs = 2
through = "one-sandbox"
needs = ["user-namespaces"]
set = ["python.path=[\"{MODULES}\"]", "python.preload=[\"drawn_before\"]"]

[[expect]]
text = ["differs or first run"]
'''

import os.path
import tempfile


def attempt():
    compare_with_previous(os.path.basename(tempfile.mktemp()))


run(attempt)
