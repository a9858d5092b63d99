"""The papers' experiments as commands: figures, tables, and people's own rankings; only these need matplotlib."""
