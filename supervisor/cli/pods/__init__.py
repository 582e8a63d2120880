"""Commands for pods, objects, images and events."""
