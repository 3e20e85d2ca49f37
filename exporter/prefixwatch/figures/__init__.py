"""What readings over time say: windows, ratios and estimates. No I/O, no clock."""
