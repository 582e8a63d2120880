"""Commands about pods, objects, images and events."""
