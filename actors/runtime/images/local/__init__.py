"""The image store on this machine's disk, and the unpacking of layers."""
