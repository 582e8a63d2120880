"""CSI drivers of this node: their registration, their volume limits, and the volumes reported as in use."""
