import sys

name = 'café'
