"""How the domain's values and the wire's messages are made of each other: what both ends of the wire share."""
