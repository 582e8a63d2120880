"""SELinux labels of pods: their choice, which is pure, and the kernel's word on them."""
