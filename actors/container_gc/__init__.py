"""Container garbage collection, as in the kubelet: dead containers, unused sandboxes, leftovers of removed pods."""
