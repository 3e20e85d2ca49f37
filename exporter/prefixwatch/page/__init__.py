"""What one page of /metrics says: bytes to samples to readings. Imports nothing of the rest."""
