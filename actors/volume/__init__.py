"""Volumes of pods: what their containers use is set up before they start and removed when they are gone."""
