import numpy as np

matrix = np.arange(12.0).reshape(3, 4)
assert (matrix @ matrix.T).trace() == 506
assert np.allclose(np.linalg.inv(np.diag([1.0, 2.0])), np.diag([1.0, 0.5]))
assert np.linalg.svd(np.random.default_rng(1).random((50, 50)))[1].shape == (50,)
np.save("matrix.npy", matrix)
assert np.array_equal(np.load("matrix.npy"), matrix)
mapped = np.memmap("mapped", dtype="int32", mode="w+", shape=(1000,))
mapped[:] = 7
mapped.flush()
assert np.fromfile("mapped", dtype="int32").sum() == 7000
assert np.array(["é", "日本"]).dtype.kind == "U"
