'''
id = "CL-005"
name = "python start-up poisoning"
attempt = """
Is any start-up location writable: user site, usercustomize, .pth, __pycache__, PYTHON* files."""
severity = "high"
proven_open = "user"

[[expect]]
text = ["none"]
'''

import site


def nearest_directory(path):
    while path and not os.path.isdir(path):
        path = os.path.dirname(path)
    return path


def attempt():
    places = [site.getusersitepackages()]
    places += [path for path in sys.path if path and os.path.isdir(path)]
    places.append(os.path.join(os.path.dirname(os.__file__), "__pycache__"))
    writable = []
    for place in places:
        directory = nearest_directory(place)
        own = os.path.abspath(directory) == os.path.abspath(".")
        if directory and not own and os.access(directory, os.W_OK):
            writable.append(place)
    if writable:
        escaped("writable " + " ".join(writable[:2]))
    else:
        contained("none")


run(attempt)
