"""Parts of the actor that know all pods: the runtime's list, pods without a worker, starts of workers, peers' feeds."""
