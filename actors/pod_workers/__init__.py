"""The pod_workers actor: drives each desired pod to its state through the CRI, with one worker per pod."""
