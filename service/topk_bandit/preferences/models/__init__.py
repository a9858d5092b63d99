"""Utilities learned from answers: Plackett-Luce, least squares, a variational posterior, aggregation."""
