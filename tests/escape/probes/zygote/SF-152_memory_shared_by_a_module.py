'''
id = "SF-152"
name = "memory shared by a preloaded module"
attempt = "A run leaves a byte in a page that a preloaded module keeps mapped shared, and the next run reads it."
severity = "high"
proven_open = "user"
open_mode = "zygote-twins"
runs = 2
through = "one-sandbox"
needs = ["user-namespaces"]
set = ["python.path=[\"{MODULES}\"]", "python.preload=[\"shared_before\"]"]

[[expect]]
text = ["nothing of another run"]
'''


def attempt():
    import shared_before

    found = shared_before.page[0]
    shared_before.page[0] = 1
    if found:
        escaped("a byte of the previous run")
    else:
        contained("nothing of another run")


run(attempt)
