"""Plugins that register in ROOT_DIR/plugins_registry, the kubelet's plugin manager.

Each owner of a type of plugins watches the directory for itself: volume for CSI drivers, resources for device plugins
and DRA drivers. So none of them waits for another process, and each tells its plugins the result.
"""
