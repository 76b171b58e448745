"""The live page of runs: their rows, thinned and served on loopback. Reads run directories; imports no torch."""
