"""What held-out rows say: gains with their errors, mixtures, and methods side by side."""
