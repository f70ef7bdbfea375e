"""The cluster-placement simulator: tasks placed on the nodes of a cluster."""
