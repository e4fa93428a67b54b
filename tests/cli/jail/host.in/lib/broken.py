raise OSError("no licence")
