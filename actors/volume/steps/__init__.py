"""Steps that the actor orders from a helper process, and their encoding."""
