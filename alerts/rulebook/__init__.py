"""The source of the recording rules and alerts; `alerts/render.py` writes them as YAML."""
