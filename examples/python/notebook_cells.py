# %% Variables stay from cell to cell
import statistics

temperatures = [12.1, 13.4, 11.8, 15.2, 16.0]
statistics.mean(temperatures)


# %% An object shows itself as in any notebook
class Chart:
    def __init__(self, values):
        self.values = values

    def _repr_svg_(self):
        xmlns = "http://www.w3.org/2000/svg"
        bars = "".join(
            f'<rect x="{30 * i}" y="{100 - 5 * high}" width="25" height="{5 * high}"/>'
            for i, high in enumerate(self.values)
        )
        return f'<svg xmlns="{xmlns}" width="160" height="100">{bars}</svg>'


Chart(temperatures)

# %% One cell may show several things
display({"text/html": "<b>warmest:</b>"}, raw=True)
display(max(temperatures))

# %% A mistake is told as Python tells it
temperatures["Monday"]

# %% A cell without an end is interrupted, and nothing is lost by it
while True:
    pass

# %%
len(temperatures)

# %% A crash takes the session with it; the next cell finds a fresh one
import ctypes

ctypes.string_at(0)

# %%
"temperatures" in globals()
