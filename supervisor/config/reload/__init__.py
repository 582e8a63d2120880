"""Configuration that changes while the agent runs, and the last one that was seen to work.

The parent watches the files, a process of its own reads them, and policy.py decides what becomes of it.
"""
