'''
id = "SF-183"
name = "reach the host when a package is imported"
attempt = "A package that a zygote preloads reads files of the host, the launcher's environment and ports, and changes itself, at its import."
severity = "critical"
proven_open = "user"
set = ["python.path=[\"{MODULES}\"]", "python.preload=[\"hostile_before\"]"]

[[expect]]
text = ["nothing of the host"]
'''

import os
import sys


def attempt():
    # A zygote has loaded it already. In the control it is beside the directory of this program.
    place = os.path.dirname(os.path.dirname(os.path.abspath(sys.argv[0])))
    sys.path.append(os.path.join(place, "modules"))
    import hostile_before

    if hostile_before.found:
        escaped(", ".join(hostile_before.found))
    else:
        contained("nothing of the host")


run(attempt)
