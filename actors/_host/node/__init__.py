"""Node facts that several managers need: addresses, conditions, selectors, shutdown, downward API, sysctl names."""
