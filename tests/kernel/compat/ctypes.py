import ctypes
import ctypes.util

libc = ctypes.CDLL(None)
assert libc.abs(-5) == 5
compare = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_int), ctypes.POINTER(ctypes.c_int))
numbers = (ctypes.c_int * 5)(3, 1, 4, 1, 5)
libc.qsort(numbers, 5, ctypes.sizeof(ctypes.c_int), compare(lambda a, b: a[0] - b[0]))
assert list(numbers) == [1, 1, 3, 4, 5]
assert ctypes.CDLL("libm.so.6").abs(-1) == 1
