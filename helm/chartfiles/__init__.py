"""What the chart is given by the rest of the repository; `helm/sync.py` writes it."""
