"""The wire format: envelope, codec, errors and the base classes of messages."""
