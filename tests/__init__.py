"""The tests: one package for each package under test, and the helpers they share."""
