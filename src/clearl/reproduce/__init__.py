"""The paper's experiments by name: their runs, running them, and what they would cost."""
