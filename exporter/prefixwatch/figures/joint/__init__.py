"""How prompt and computed tokens of requests go together, from pools that state only sums and buckets of each.

`bounds` says what is possible at all, `fitting` what is likely.
"""
