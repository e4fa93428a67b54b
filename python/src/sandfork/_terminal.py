"""Makes a guest's text harmless to a terminal, as the command does (`src/cli/terminal.rs`)."""

from ._values import harmless

__all__ = ["harmless"]
