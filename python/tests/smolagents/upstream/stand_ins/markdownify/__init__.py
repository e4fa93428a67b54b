"""So that a saved tool which imports it can be read; no test visits a page with it."""
