"""What is run from a shell, and what looks at whole models."""
