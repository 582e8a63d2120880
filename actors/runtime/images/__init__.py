"""Images of the embedded runtime: the store, what fills it (archives, layouts), and root file systems made from it."""
