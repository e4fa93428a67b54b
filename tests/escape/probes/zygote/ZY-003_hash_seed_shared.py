'''
id = "ZY-003"
name = "hash seed shared"
attempt = "hash(\"x\") equals the previous run's."
severity = "low"
proven_open = "user"
open_mode = "zygote"
runs = 2

[[expect]]
text = ["differs or first run"]
why = "a documented residual within one zygote; two runs of the command line never share one"
'''


def attempt():
    value = str(hash("sandfork_zy003"))
    print("VALUE " + value)
    if var("PREV") == value:
        escaped("same hash seed")
    else:
        contained("differs or first run")


run(attempt)
