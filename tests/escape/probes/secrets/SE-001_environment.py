'''
id = "SE-001"
name = "environment variables"
attempt = "Look for the bait secret in os.environ."
severity = "critical"
proven_open = "user"

[[expect]]
text = ["* variables"]
'''


def attempt():
    if "BAIT_SECRET" in os.environ:
        escaped("BAIT_SECRET present")
    else:
        contained("%d variables" % len(os.environ))


run(attempt)
