"""The exporter's own listener: who may ask, over TLS or not, how many at a time, and how slowly."""
