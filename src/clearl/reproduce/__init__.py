"""The paper's experiments by name: which runs they are made of, running them, and what they would cost."""
