"""Compiled loops of the simulation of fleets."""
