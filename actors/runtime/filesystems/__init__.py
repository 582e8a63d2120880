"""Root file systems and image volumes of containers, mounted from the layers of the image store."""
