"""The pod lifecycle event generator: observes the runtime and reports changed pods."""
