"""A stand-in engine with a real block pool, and traffic whose cause is known.

Everything here runs in simulated time and is deterministic for a seed; the wall clock, the
network and files stand in ``server`` and ``offline``.
"""
