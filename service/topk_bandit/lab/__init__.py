"""The laboratory: simulated shops and the papers' experiments. Serving never imports it."""
