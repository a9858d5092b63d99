"""People's preferences: which lists to ask about, and utilities learned from the answers. No I/O, no clock."""
