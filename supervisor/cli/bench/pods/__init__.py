"""Pods that `supervisor bench --pods` starts and removes: by calls of the runtime alone, and through the agent."""
