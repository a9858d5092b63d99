"""Doors with the paths and shapes of other services, for shops that move in from them."""
