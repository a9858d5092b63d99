"""A study in files: items and answers in, questions and preferences out, for a person at a terminal."""
