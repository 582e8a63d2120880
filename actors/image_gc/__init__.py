"""Image garbage collection, as in the kubelet: removes unused images when the disk fills or they age."""
