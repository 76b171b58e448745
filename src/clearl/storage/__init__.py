"""Files that survive a crash: checkpoints, and the codec of their contents."""
