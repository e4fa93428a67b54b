import sys

known = open("names/known.txt").read().split()
print("hello", *(name for name in sys.argv[1:] if name in known))
