"""The words of the file beside the program."""


def first(count):
    with open("words.txt") as file:
        return file.read().split()[:count]
