"""So that a test module which imports it can be collected; no test that uses it is run."""
