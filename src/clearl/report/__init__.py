"""From run directories to a report."""
