"""
What-if questions: patch × grid × measure.

A patch (`patch/patch.py`) changes a snapshot and its policy, a grid (`grid.py`) has a patch for each
combination of values, and the runner (`runner.py`) plans all of them and returns measures (`measures.py`).
"""
