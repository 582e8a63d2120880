"""The parts of the actor for all pods: pods without a worker, starts of workers, the list of the runtime, peers."""
