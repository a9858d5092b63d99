"""Listeners with the paths and messages of other services, for shops that move in from them."""
