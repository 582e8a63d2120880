"""Dynamic resource allocation: DRA drivers prepare the claims of pods (the kubelet's DRA manager)."""
