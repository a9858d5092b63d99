"""Generated from `protos/` by ``make protos``."""
