"""Look at a board without Grafana: run its queries on a Prometheus, and draw it with the same layout."""
