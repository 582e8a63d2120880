"""The client side of the objects actor: Secrets, ConfigMaps and other objects by reference."""
