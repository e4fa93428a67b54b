'''
id = "SF-030"
name = "hash seed shared by fresh interpreters"
attempt = "The same where the policy asks for a cold interpreter per run: nothing may be shared."
severity = "low"
proven_open = "user"
open_mode = "zygote"
runs = 2
through = "one-sandbox"
set = ["python.fresh=true"]

[[expect]]
text = ["differs or first run"]
'''


def attempt():
    value = str(hash("sandfork_sf030"))
    print("VALUE " + value)
    if var("PREV") == value:
        escaped("same hash seed")
    else:
        contained("differs or first run")


run(attempt)
