"""Upgrade without drain: the supervisor executes its next self, then actors restart one by one, each on trial."""
