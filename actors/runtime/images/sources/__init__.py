"""Sources of images: registries and their mirrors, archives and layouts."""
