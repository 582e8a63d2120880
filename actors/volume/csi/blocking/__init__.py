"""CSI work that blocks; it runs in the helper process."""
