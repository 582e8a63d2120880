"""Messages to the managers of pods, a module for each receiving actor."""
