"""The parts that operations on sandboxes and containers share, and the client of the monitor."""
