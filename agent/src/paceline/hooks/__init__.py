"""What runs inside the training process. torch is imported lazily, and only here."""
