"""What each path of the kubelet API answers."""
