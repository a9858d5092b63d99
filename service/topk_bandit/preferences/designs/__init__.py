"""D-optimal designs: how often to ask about each list, with a bound on what could still be gained."""
