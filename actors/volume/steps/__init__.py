"""Records that the actor and its helper processes share: steps, outcomes, errors, and directories on disk."""
