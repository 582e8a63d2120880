"""The helper processes that touch volumes, and the channel to them."""
