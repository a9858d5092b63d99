"""Files as rows: tables, and rankings that others publish. Nothing here knows what columns mean."""
