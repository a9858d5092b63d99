"""The papers' own algorithms, written as the papers write them, to compare with what this service uses instead."""
