'''
id = "PH-013"
name = "tool callback flood"
attempt = "20,000 tool calls in a row."
severity = "medium"
proven_open = "user"
open_mode = "tools"

[[expect]]
text = ["stopped at * ToolLimitError"]

[[expect]]
text = ["no tools offered"]
why = "the command line offers the guest no tools"
'''


def attempt():
    call = globals().get("call_tool")
    if not call:
        return contained("no tools offered")
    served = 0
    try:
        for served in range(1, 20001):
            call("echo", x=1)
        escaped("20000 calls served")
    except Exception as error:
        contained("stopped at %d %s" % (served, type(error).__name__))


run(attempt)
