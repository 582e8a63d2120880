"""Envelope, codec, errors and the base classes of messages."""
