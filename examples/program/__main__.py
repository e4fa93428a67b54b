"""A program of several files: `sandfork run examples/program 3`."""

import sys

import words

count = int(sys.argv[1])
print(count, "words of words.txt:", ", ".join(words.first(count)))
