"""Simulated shops and the episodes that policies play in them; nothing here knows the service."""
