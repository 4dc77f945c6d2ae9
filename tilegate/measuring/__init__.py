"""From two revisions to raw samples: worker processes, turns, replicates, and what disturbed them.

Writes samples.json. Asks `tilegate.judging` what a case still needs; concludes nothing itself.
"""
