'''
id = "PH-003"
name = "JSON bomb"
attempt = """
Result JSON with 100,000 nested arrays, a 100,000-digit integer, NaN, lone surrogates and
duplicate keys."""
severity = "high"
proven_open = "user"
judge = "host"
host_check = "next-run-served"

[[expect]]
text = ["payload sent"]
'''


def attempt():
    contained("payload sent")
    print("RESULT-JSON:" + "[" * 100000 + "]" * 100000)
    number = "9" * 100000
    print('RESULT-JSON:{"a":' + number + ',"b":NaN,"c":"\\ud800","a":1}', flush=True)


run(attempt)
