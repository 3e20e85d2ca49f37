"""What vLLM's prefix cache does, why it misses, and what to change."""

__version__ = "0.1.0"
