"""Tests against the real supervisor. They are skipped by the word of `sandfork doctor` alone."""
