"""From raw samples to a verdict: pure functions, which read no clock and no device and believe no conclusion.

Imports nothing of `tilegate.measuring`: whoever publishes a verdict can compute it again from the samples alone.
"""
