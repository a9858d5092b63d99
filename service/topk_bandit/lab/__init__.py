"""The laboratory: the papers' own algorithms, simulated shops and experiments. Serving never imports it."""
