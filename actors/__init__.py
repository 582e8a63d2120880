"""The actors, and the packages that they share. A package without underscore is one manager and one process."""
