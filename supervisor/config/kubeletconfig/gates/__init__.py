"""The feature gates of Kubernetes 1.36 as data: their stages and defaults (`table`), and their effect (`verdicts`)."""
