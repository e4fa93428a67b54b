"""Tests against the real supervisor. Only `sandfork doctor` decides whether they are skipped."""
