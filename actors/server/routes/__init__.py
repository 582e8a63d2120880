"""Handlers of the kubelet API's paths, except pods and streams."""
