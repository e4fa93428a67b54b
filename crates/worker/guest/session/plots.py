"""Supports matplotlib's figures, charts and IPython's displays if the guest uses them."""

import os
import sys

from ..patches import Patches
from .charts import Charts


class Plots:
    def __init__(self, displays, get_ipython):
        self.displays = displays
        self.get_ipython = get_ipython
        displays.formatters.append(figure_forms)
        changes = {
            "matplotlib.pyplot": self.take_pyplot,
            "matplotlib.figure": self.take_figure,
            "IPython.core.display_functions": self.take_ipython,
            "IPython.core.display": self.take_ipython,
            "IPython.core.getipython": self.take_get_ipython,
        }
        self.charts = Charts(displays, changes)
        self.patches = Patches(changes)

    def prepare(self):
        """Selects the in-memory backend, also for the guest's subprocesses, because there is no screen."""
        os.environ.setdefault("MPLBACKEND", "agg")
        matplotlib = sys.modules.get("matplotlib")
        if matplotlib is not None:
            # A preloaded matplotlib has read its environment in the zygote.
            matplotlib.rcParams["backend"] = os.environ["MPLBACKEND"]
        self.patches.prepare()

    def take_pyplot(self, pyplot):
        def show(*args, **kwargs):
            """Displays all figures and closes them."""
            self.show_figures()

        pyplot.show = show

    def take_figure(self, module):
        def show(figure, *args, **kwargs):
            """Displays the figure and closes it, so that the end of the cell does not display it again."""
            self.displays.show(figure_forms(figure))
            self.close(figure)

        module.Figure.show = show

    def take_ipython(self, module):
        if hasattr(module, "display"):
            module.display = self.displays.display
        if hasattr(module, "clear_output"):
            # The caller has already received what was displayed.
            module.clear_output = lambda wait=False: None

    def take_get_ipython(self, module):
        found = module.get_ipython

        def get_ipython():
            """Returns the session's shell to guest code. A library gets IPython's own answer, as outside a
            notebook."""
            is_of_guest = sys._getframe(1).f_globals is vars(sys.modules["__main__"])
            return self.get_ipython() if is_of_guest else found()

        for name in ("IPython.core.getipython", "IPython"):
            # A preloaded package has imported it by name.
            if hasattr(sys.modules.get(name), "get_ipython"):
                sys.modules[name].get_ipython = get_ipython

    def show_figures(self):
        """Displays the figures of pyplot and closes them."""
        pyplot = sys.modules.get("matplotlib.pyplot")
        if pyplot is None or not hasattr(pyplot, "get_fignums"):
            return
        for number in pyplot.get_fignums():
            figure = pyplot.figure(number)
            try:
                if figure.axes or figure.lines:
                    self.displays.show(figure_forms(figure))
            finally:
                pyplot.close(figure)

    def close_figures(self):
        """Closes the figures of an interrupted cell, so that the next cell does not display them."""
        pyplot = sys.modules.get("matplotlib.pyplot")
        if hasattr(pyplot, "close"):
            pyplot.close("all")

    def close(self, value):
        """Closes a figure that was displayed as a cell's value, so that it is not displayed again."""
        pyplot = sys.modules.get("matplotlib.pyplot")
        if is_figure(value) and pyplot is not None:
            pyplot.close(value)


def is_figure(value):
    kind = getattr(sys.modules.get("matplotlib.figure"), "Figure", None)
    return isinstance(kind, type) and issubclass(type(value), kind)


def figure_forms(value):
    if not is_figure(value):
        return None
    from io import BytesIO

    picture = BytesIO()
    shown = {"text/plain": str(value)}
    try:
        value.savefig(picture, format="png", bbox_inches="tight", dpi="figure")
    except Exception as error:
        text = "<%s, not drawn: %s: %s>" % (shown["text/plain"], type(error).__name__, error)
        return {"text/plain": text}
    return {**shown, "image/png": picture.getvalue()}
