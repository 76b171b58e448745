"""Files that survive a crash: checkpoints, and the codec of what they hold."""
