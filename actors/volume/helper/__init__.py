"""Helper processes that touch volumes, and the actor's pool of them."""
