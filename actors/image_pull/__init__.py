"""The image manager: makes images available before containers start, by pull policy and credentials."""
