"""How a run advances from one model to the next."""
