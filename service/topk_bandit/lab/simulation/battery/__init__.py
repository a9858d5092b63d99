"""Shops that are not of the paper's form: many kinds, each from one seed, each knowing its true expected rewards."""
