"""A trained agent in other hands: graphs that need no clearl, model cards, and the Hugging Face hub."""
