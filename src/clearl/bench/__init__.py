"""How fast training is, next to what this machine could do at best."""
