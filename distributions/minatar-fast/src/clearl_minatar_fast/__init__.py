"""Games of MinAtar rewritten for speed. Follows MinAtar (GPL-3.0) closely and is under the same licence."""
