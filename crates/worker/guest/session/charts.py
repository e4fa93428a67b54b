"""Displays charts of plotly, Vega-Altair and Bokeh as data, which the caller's own copy of the library draws.
No script of the guest leaves the sandbox. Imports nothing for a library that the guest has not loaded."""

import sys

PLOTLY = "application/vnd.plotly.v1+json"
VEGA = "application/vnd.vegalite.v%d+json"
BOKEH = "application/vnd.sandfork.bokeh.v%s+json"
# The module that defines each chart class, the class, and the function that creates its forms.
KINDS = (
    ("plotly.basedatatypes", "BaseFigure", lambda value: plotly_forms(value)),
    ("altair.vegalite.v5.api", "TopLevelMixin", lambda value: altair_forms(value, 5)),
    ("altair.vegalite.v6.api", "TopLevelMixin", lambda value: altair_forms(value, 6)),
    ("bokeh.models.layouts", "LayoutDOM", lambda value: bokeh_forms(value)),
)


class Charts:
    def __init__(self, displays, changes):
        self.displays = displays
        displays.formatters.append(chart_forms)
        changes.update(
            {
                "plotly.io._renderers": self.take_plotly,
                "plotly.io": self.take_plotly,
                "altair.vegalite.v5.api": self.take_altair,
                "altair.vegalite.v6.api": self.take_altair,
                "bokeh.io.showing": self.take_bokeh,
                "bokeh.io.output": self.take_bokeh_output,
            }
        )

    def take_plotly(self, module):
        def show(figure, *args, **kwargs):
            """Displays a figure, as in a notebook."""
            if not is_chart(figure):
                from plotly.graph_objects import Figure

                # A dict of the figure's parts.
                figure = Figure(figure)
            self.displays.display(figure)

        module.show = show

    def take_altair(self, module):
        def show(chart, *args, **kwargs):
            """Displays a chart, as in a notebook."""
            self.displays.display(chart)

        module.TopLevelMixin.show = show

    def take_bokeh(self, module):
        def show(obj, *args, **kwargs):
            """Displays a plot, as in a notebook."""
            self.displays.display(obj)

        for name in ("bokeh.io.showing", "bokeh.io", "bokeh.plotting"):
            # Preloaded modules have imported it by name.
            if hasattr(sys.modules.get(name), "show"):
                sys.modules[name].show = show
        module.show = show

    def take_bokeh_output(self, module):
        def output_notebook(*args, **kwargs):
            """Does nothing: plots are displayed as in a notebook."""

        for name in ("bokeh.io", "bokeh.plotting"):
            if hasattr(sys.modules.get(name), "output_notebook"):
                sys.modules[name].output_notebook = output_notebook
        module.output_notebook = output_notebook


def kind_of(value):
    for module, name, make in KINDS:
        kind = getattr(sys.modules.get(module), name, None)
        if isinstance(kind, type) and issubclass(type(value), kind):
            return make
    return None


def is_chart(value):
    return kind_of(value) is not None


def chart_forms(value):
    make = kind_of(value)
    if make is None:
        return None
    name = type(value).__name__
    try:
        return {"text/plain": "<%s of %s>" % (name, type(value).__module__.partition(".")[0]), **make(value)}
    except Exception as error:
        return {"text/plain": "<%s, not drawn: %s: %s>" % (name, type(error).__name__, error)}


def plotly_forms(value):
    return {PLOTLY: value.to_json()}


def altair_forms(value, version):
    from json import dumps

    spec = value.to_dict()
    forms = {VEGA % version: dumps(spec)}
    try:
        import vl_convert
    except ImportError:
        return forms
    try:
        # An image, which needs no script.
        forms["image/svg+xml"] = vl_convert.vegalite_to_svg(spec)
    except Exception:
        # vl_convert starts threads, which the policy may not allow.
        pass
    return forms


def bokeh_forms(value):
    from json import dumps

    from bokeh.embed import json_item

    version = sys.modules["bokeh"].__version__.partition(".")[0]
    return {BOKEH % version: dumps(json_item(value))}
